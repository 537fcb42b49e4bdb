// Copyright © 2026 mlx_norms contributors
//
// A norm without weight and bias, and the full norm split into that and MLX's
// ops, for transforms that no single kernel computes.

#pragma once

#include "csrc/norm/norm.h"

namespace mlx_norms {

// {normalized in dtype, [sum]}
Arrays bare_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream);

// The normalized rows of x, or of the sum, in float32.
array bare_norm(const NormSpec& spec, const array& x, mx::Stream stream);

// The Jacobian of the normalized rows of x, which is symmetric, times a, plus
// the sum's cotangent unless that is null.
array bare_norm_vjp(
    const NormSpec& spec,
    mx::Dtype dtype,
    const array& x,
    const array& a,
    const array* sum_cotangent,
    mx::Stream stream);

// Norm with weight and bias applied by MLX's ops.
Arrays split_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream);

// The gradients with weights applied and sums over rows taken by MLX's ops.
Arrays
split_norm_vjp(const NormVJP& op, const Arrays& inputs, mx::Stream stream);

} // namespace mlx_norms
