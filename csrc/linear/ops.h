// Copyright © 2026 mlx_norms contributors
//
// The ops of norm + projection, and of a projection alone, as C++ functions of
// their arguments, which have the names of the public functions' parameters:
// mlx_norms/ops says what they are. Null stands for an array that is not given.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/common/types.h"
#include "mlx/mlx.h"

namespace mlx_norms {

struct NormLinearArguments {
  const array* x = nullptr;
  const array* norm_weight = nullptr;
  const array* norm_bias = nullptr;
  std::vector<Arrays> weights; // an array each, or the three of mx.quantize
  std::optional<std::vector<OptionalArray>> biases; // one for each weight
  float eps = 1e-5f;
  const array* residual = nullptr;
  bool gated = false;
  float weight_offset = 0.0f;
  mx::StreamOrDevice stream;
};

// {each projection's output, or the gated one; [sum]}
Arrays rms_norm_linear(const NormLinearArguments& arguments);
Arrays layer_norm_linear(const NormLinearArguments& arguments);

struct QuantizedMatmulArguments {
  const array* x = nullptr;
  const array* w = nullptr;
  const array* scales = nullptr;
  const array* biases = nullptr;
  bool transpose = true;
  std::optional<int> group_size;
  std::optional<int> bits;
  std::string mode = "affine";
  const array* residual = nullptr;
  mx::StreamOrDevice stream;
};

// MLX's product, plus a residual.
array quantized_matmul(const QuantizedMatmulArguments& arguments);

} // namespace mlx_norms
