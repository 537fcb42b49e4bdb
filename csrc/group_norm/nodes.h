// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/group_norm/spec.h"

namespace mlx_norms {

// {normalized, [mean, rest, variance]}, by kernels or, where there are none or
// they failed their self-check, by MLX's ops. The inputs have been checked.
Arrays make_group_norm(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// {[gradient of x], [bias sums, weight sums]}
Arrays make_group_norm_vjp(
    const GroupNormVJPSpec& spec,
    Arrays inputs,
    mx::Stream stream);

// The same, by a kernel.
Arrays group_norm_node(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);
Arrays group_norm_vjp_node(
    const GroupNormVJPSpec& spec,
    Arrays inputs,
    mx::Stream stream);

} // namespace mlx_norms
