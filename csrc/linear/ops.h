// Copyright © 2026 mlx_norms contributors
//
// The ops of norm + projection, and of a projection alone, as C++ functions.
// The Python docstrings in csrc/python say what the arguments are. Null stands
// for an array that is not given.

#pragma once

#include "csrc/linear/mlx_product.h"
#include "csrc/norm/spec.h"

namespace mlx_norms {

// The projections that follow the norm.
struct Projected {
  std::vector<Arrays> weights; // an array each, or the three of mx.quantize
  std::vector<OptionalArray> biases; // one for each weight
  bool gated;
};

// {each projection's output, or the gated one; [sum]}
Arrays rms_norm_linear(
    const array& x,
    const array* norm_weight,
    const Projected& projected,
    float eps,
    const array* residual,
    float weight_offset,
    mx::StreamOrDevice stream);

// {each projection's output, or the gated one; [sum]}
Arrays layer_norm_linear(
    const array& x,
    const array* norm_weight,
    const array* norm_bias,
    const Projected& projected,
    float eps,
    const array* residual,
    mx::StreamOrDevice stream);

// MLX's product, plus a residual.
array quantized_matmul(
    const array& x,
    const array& w,
    const array& scales,
    const array* biases,
    const Quantization& by,
    const array* residual,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
