// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/self_check.h"
#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Whether the kernel for these inputs can be used (see common/self_check.h). Of
// the inputs only dtypes and row length matter.
bool agrees(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

bool agrees(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream);

// The spec's flags, with numbers that suit a self-check.
NormSpec flags_of(NormSpec spec);

// Appends the flags to the key of a kernel.
void append_flags(const NormSpec& spec, std::vector<int64_t>& numbers);

} // namespace mlx_norms
