// Copyright © 2026 mlx_norms contributors
//
// Activations in MLX's ops.

#pragma once

#include "csrc/common/activation.h"
#include "csrc/common/types.h"

namespace mlx_norms {

// An activation in a's dtype, as mx.sigmoid, and as mlx.nn's silu, gelu and
// relu2 without compile.
array activated(Activation activation, const array& a, mx::Stream stream);

// Its derivative.
array slope(Activation activation, const array& a, mx::Stream stream);

} // namespace mlx_norms
