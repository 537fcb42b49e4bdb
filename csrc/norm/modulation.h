// Copyright © 2026 mlx_norms contributors
//
// y * (1 + scale) + shift, of a norm's result, and residual + factor * x, its
// input.

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// In MLX's ops, each of which has MLX's result_type.
array modulate(
    const NormSpec& spec,
    const array& y,
    const NormInputs& in,
    mx::Stream stream);

// 1 + scale in float32.
array scale_factor(const array& scale, mx::Stream stream);

// Whether the product of y, of this dtype, and 1 + scale has it, too.
bool product_keeps(mx::Dtype dtype, const array& scale);

// The gradients that are wanted, in the inputs' dtypes or float32.
Gradients modulated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& x_or_sum,
    const array& cotangent,
    const array* sum_cotangent,
    Operands wanted,
    mx::Stream stream);

// The derivative of the sum in the direction of these tangents, each of which
// may be null.
OptionalArray sum_tangent(
    const NormSpec& spec,
    const NormInputs& in,
    const PerOperand<const array*>& tangent,
    mx::Stream stream);

// The gradients of x and, if that is wanted, of the factor, for the sum's. For
// a factor of the sum that of x is the residual's, too.
Gradients factor_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& sum_gradient,
    bool of_x,
    bool of_factor,
    mx::Stream stream);

} // namespace mlx_norms
