// Copyright © 2026 mlx_norms contributors
//
// What the primitives' vmap have in common.

#pragma once

#include "csrc/norm.h"

namespace mlx_norms {

// The size of the batch axis.
inline int batch_size(const Arrays& inputs, const std::vector<int>& axes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (axes[i] >= 0) {
      return inputs[i].shape(axes[i]);
    }
  }
  return 1;
}

// a with a batch axis of this size in front: moved there, or broadcast.
inline array batched(const array& a, int axis, int size, mx::Stream s) {
  if (axis >= 0) {
    return axis == 0 ? a : mx::moveaxis(a, axis, 0, s);
  }
  auto shape = a.shape();
  shape.insert(shape.begin(), size);
  return mx::broadcast_to(a, shape, s);
}

inline std::pair<Arrays, std::vector<int>> with_leading_axes(Arrays outputs) {
  std::vector<int> axes(outputs.size(), 0);
  return {std::move(outputs), std::move(axes)};
}

} // namespace mlx_norms
