// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/axes.h"

namespace mlx_norms {

// The batch axes of C = A B, for A, B and C in this order. A stride is 0 where
// an operand has one matrix for all.
Axes batch_axes(const array& a, const array& b, const array& c);

// Calls f(offsets of the matrices of A, B and C, in elements) for each index.
template <typename F>
void for_each_matrix(const Axes& axes, F f) {
  auto matrices = size_of(axes);
  for (int64_t n = 0; n < matrices; ++n) {
    f(offsets_at(axes, n));
  }
}

// Removes the innermost axis, which the launch itself then covers.
inline Axis take_inner_axis(Axes& axes) {
  if (axes.empty()) {
    return {1, {}};
  }
  auto inner = axes.back();
  axes.pop_back();
  return inner;
}

} // namespace mlx_norms
