// Copyright © 2026 mlx_norms contributors

#pragma once

#include <optional>
#include <string>

#include "csrc/common/types.h"

namespace mlx_norms {

// How a weight is quantized, in MLX's words.
struct Quantization {
  bool transpose = true;
  std::optional<int> group_size;
  std::optional<int> bits;
  std::string mode = "affine";
};

// x as the rows of a vmap, or an error if an array of the weight is mapped too.
// Inputs: x, then the weight's arrays; an axis of -1 is none.
array mapped_rows(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream stream);

// MLX's quantized_matmul. In a trace it is one that vmap takes.
array mlx_product(
    const array& x,
    const array& w,
    const array& scales,
    const array* biases,
    const Quantization& by,
    mx::Stream stream);

} // namespace mlx_norms
