// Copyright © 2026 mlx_norms contributors
//
// A norm without weight and bias, and the full norm split into that and MLX's
// ops, for transforms that no single kernel computes.

#pragma once

#include "csrc/norm/primitive.h"

namespace mlx_norms {

// The norm of a sum that has been computed.
NormSpec without_sum(NormSpec spec);

// The norm without its gate and activation.
NormSpec without_gate(NormSpec spec);

// {normalized in dtype, [sum]}
Arrays bare_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream);

// The normalized rows of s, in float32.
array bare_norm(NormSpec spec, const array& s, mx::Stream stream);

// The Jacobian of the normalized rows of s, which is symmetric, times a, plus
// the sum's cotangent unless that is null.
array bare_norm_vjp(
    const NormSpec& spec,
    mx::Dtype dtype,
    const array& s,
    const array& a,
    const array* sum_cotangent,
    mx::Stream stream);

// Norm with weight and bias applied by MLX's ops.
Arrays split_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream);

// NormVJP with weights applied and sums over rows taken by MLX's ops.
Arrays split_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const NormVJPInputs& in,
    mx::Stream stream);

} // namespace mlx_norms
