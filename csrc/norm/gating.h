// Copyright © 2026 mlx_norms contributors
//
// The activation of a gate or of a norm's result, in MLX's ops, and the
// gradients of gated norms.

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// In a's dtype, as mx.sigmoid, and as mlx.nn's silu, gelu and relu2 without
// compile.
array activated(Activation activation, const array& a, mx::Stream stream);

// Its derivative.
array slope(Activation activation, const array& a, mx::Stream stream);

// The result y of the norm, gated or activated: early in MLX's result_type,
// late in float32.
array gate_result(
    const NormSpec& spec,
    const array& y,
    const NormInputs& in,
    mx::Stream stream);

// What is normalized if the gate comes first: likewise.
array gated_input(
    const NormSpec& spec,
    const NormInputs& in,
    mx::Stream stream);

// The gradients that are wanted, in the inputs' dtypes or float32.
Gradients gated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& cotangent,
    Operands wanted,
    mx::Stream stream);

} // namespace mlx_norms
