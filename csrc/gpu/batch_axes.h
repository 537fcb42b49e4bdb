// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/axes.h"

namespace mlx_norms {

// The batch axes of C = A B, with A, B and C in this order. A stride is 0 where
// an operand has one matrix for all.
Axes batch_axes(const array& a, const array& b, const array& c);

// Calls f(elements from the first matrix of A, B and C) for each index.
template <typename F>
void for_each_matrix(const Axes& axes, F f) {
  auto matrices = size_of(axes);
  for (int64_t n = 0; n < matrices; ++n) {
    f(offsets_at(axes, n));
  }
}

// Takes the innermost axis for a launch's own.
inline Axis take_inner_axis(Axes& axes) {
  if (axes.empty()) {
    return {1, {}};
  }
  auto inner = axes.back();
  axes.pop_back();
  return inner;
}

} // namespace mlx_norms
