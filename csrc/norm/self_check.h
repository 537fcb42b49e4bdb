// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/self_check.h"
#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Whether the kernel for these inputs, of which only dtypes and row length
// count, can be used (see common/self_check.h).
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

// The flags of a spec with values that harm no result.
NormSpec flags_of(NormSpec spec);

// What a kernel with these flags is known by, beside its inputs.
void append_flags(const NormSpec& spec, std::vector<int64_t>& numbers);

} // namespace mlx_norms
