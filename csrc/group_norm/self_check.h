// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/group_norm/spec.h"

namespace mlx_norms {

// Whether the kernels for these inputs can be used (see common/self_check.h).
bool agrees(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

bool agrees(
    const GroupNormVJPSpec& spec,
    const Arrays& inputs,
    mx::Stream stream);

} // namespace mlx_norms
