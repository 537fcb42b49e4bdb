// Copyright © 2026 mlx_norms contributors
//
// Norms that are written in MLX's operations.

#pragma once

#include <optional>

#include "csrc/patching/written_values.h"

namespace mlx_norms {

// What such code computes, as one of our norms does.
struct WrittenNorm {
  enum class Kind { Rms, Layer, L2 };
  Kind kind;
  int axis; // of x, not negative
  float eps;
  bool eps_bounds = false;   // of the root, as in NormSpec
  std::optional<int> weight; // which parameter
  float weight_offset = 0.0f;
  std::optional<int> bias;
  Rounding rounding = Rounding::Early;
  mx::Dtype dtype;
};

// The norm that a value is (written_reader.h), if it is one of ours.
std::optional<WrittenNorm> norm_of(
    const Value& value,
    const array& output,
    const array& x,
    const Arrays& parameters);

} // namespace mlx_norms
