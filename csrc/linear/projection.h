// Copyright © 2026 mlx_norms contributors
//
// A projection of rows, as nn.Linear and nn.QuantizedLinear compute it.

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// How the weight of a projection, of shape (N, K), is stored.
struct Projection {
  int bits = 0;       // 0: an array; 4 or 8: MLX's affine quantization
  int group_size = 0; // elements of a row that share a scale and a bias
  bool bias = false;  // added to the projection's output

  bool operator==(const Projection&) const = default;

  // The weight, [its scales, its biases], [bias].
  int n_inputs() const {
    return (bits ? 3 : 1) + bias;
  }
};

// The inputs of one projection, by name.
struct ProjectionInputs {
  const array& weight;
  const array* scales; // of affine quantization, like biases
  const array* biases;
  const array* bias; // added to the output

  ProjectionInputs(const Projection& p, const array* first)
      : weight(*first++),
        scales(p.bits ? first++ : nullptr),
        biases(p.bits ? first++ : nullptr),
        bias(p.bias ? first++ : nullptr) {}
};

// The projection of x by MLX's ops, and its dtype.
array project(
    const Projection& p,
    const ProjectionInputs& in,
    const array& x,
    mx::Stream s);
mx::Dtype projected_dtype(const ProjectionInputs& in, mx::Dtype x);

} // namespace mlx_norms
