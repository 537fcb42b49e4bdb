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

// Throws if vmap maps an array of a weight: those from `first` on.
void check_unmapped(const std::vector<int>& axes, int first);

// MLX's quantized_matmul. In a trace it is one that vmap takes.
array mlx_product(
    const array& x,
    const array& w,
    const array& scales,
    const array* biases,
    const Quantization& by,
    mx::Stream stream);

// MLX's addmm: bias + x w. In a trace it is one that vmap takes.
array mlx_addmm(
    const array& bias,
    const array& x,
    const array& w,
    mx::Stream stream);

} // namespace mlx_norms
