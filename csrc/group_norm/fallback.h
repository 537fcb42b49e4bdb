// Copyright © 2026 mlx_norms contributors
//
// In MLX's ops, which compute in float32 and round once.

#pragma once

#include "csrc/group_norm/spec.h"

namespace mlx_norms {

// {normalized in `dtype`, [mean, rest, variance]}
Arrays fallback_group_norm(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

// {[gradient of x], [bias sums, weight sums]}
Arrays fallback_group_norm_vjp(
    const GroupNormVJPSpec& spec,
    const Arrays& inputs,
    mx::Stream stream);

} // namespace mlx_norms
