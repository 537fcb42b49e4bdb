// Copyright © 2026 mlx_norms contributors

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mlx/array.h"

namespace mlx_norms {

namespace mx = mlx::core;

// A batch axis of C = A B, and how many elements of A, B and C a step along it
// is: 0 where an operand has one matrix for all.
struct BatchAxis {
  int64_t size;
  std::array<int64_t, 3> strides;

  // Whether steps along `outer` are steps past this axis's end.
  bool continues_in(const BatchAxis& outer) const {
    for (size_t i = 0; i < strides.size(); ++i) {
      if (outer.strides[i] != size * strides[i]) {
        return false;
      }
    }
    return true;
  }
};

// Innermost first, with those merged that can be, and without those of one
// matrix.
std::vector<BatchAxis>
batch_axes(const mx::array& a, const mx::array& b, const mx::array& c);

// Calls f(elements of A, B and C) for each index of the axes.
template <typename F>
void for_each_matrix(const std::vector<BatchAxis>& axes, F f) {
  int64_t matrices = 1;
  for (const auto& axis : axes) {
    matrices *= axis.size;
  }
  for (int64_t n = 0; n < matrices; ++n) {
    std::array<int64_t, 3> offsets = {};
    int64_t rest = n;
    for (const auto& axis : axes) {
      for (size_t i = 0; i < offsets.size(); ++i) {
        offsets[i] += rest % axis.size * axis.strides[i];
      }
      rest /= axis.size;
    }
    f(offsets);
  }
}

} // namespace mlx_norms
