// Copyright © 2026 mlx_norms contributors
//
// What the primitives' vmap have in common. No batch size becomes part of the
// graph: under shapeless compile it may change.

#pragma once

#include <algorithm>

#include "csrc/common/types.h"

namespace mlx_norms {

// Whether any of the inputs from `begin` on, before `end`, has a batch axis.
inline bool any_batched(const std::vector<int>& axes, int begin, int end) {
  return std::any_of(axes.begin() + begin, axes.begin() + end, [](int axis) {
    return axis >= 0;
  });
}

// Moves its batch axis to the front, or adds one of size 1 if it has none.
inline array with_leading_axis(const array& a, int axis, mx::Stream s) {
  if (axis < 0) {
    return mx::expand_dims(a, 0, s);
  }
  return axis == 0 ? a : mx::moveaxis(a, axis, 0, s);
}

// mx::expand_dims of several axes in ascending order, whose vmap in MLX 0.32.4
// is right for one axis alone.
inline array
expand_in_turn(array a, const std::vector<int>& axes, mx::Stream s) {
  for (int axis : axes) {
    a = mx::expand_dims(a, axis, s);
  }
  return a;
}

// Moves the batch axis of these arrays of rows to the front, and broadcasts
// arrays without one. Apart from the batch, they have one shape.
inline Arrays with_leading_batch(
    const Arrays& rows,
    const std::vector<int>& axes,
    mx::Stream s) {
  Arrays batched;
  bool all = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    all &= axes[i] >= 0;
    batched.push_back(with_leading_axis(rows[i], axes[i], s));
  }
  return all ? batched : mx::broadcast_arrays(batched, s);
}

inline std::pair<Arrays, std::vector<int>> with_leading_axes(Arrays outputs) {
  std::vector<int> axes(outputs.size(), 0);
  return {std::move(outputs), std::move(axes)};
}

} // namespace mlx_norms
