// Copyright © 2026 mlx_norms contributors
//
// The derivatives of what norms have besides a weight and a bias, by the
// kernels of plain ones. Gradients that are wanted have the inputs' dtypes or
// float32.

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// The gradients of a gated norm.
Gradients gated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& cotangent,
    Operands wanted,
    mx::Stream stream);

// The gradients of a norm with a scale or a shift.
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
