// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/batch_axes.h"

namespace mlx_norms {

Axes batch_axes(const array& a, const array& b, const array& c) {
  Axes axes;
  for (int i = c.ndim(); i >= 3; --i) {
    Axis axis{c.shape(-i), {}};
    size_t n = 0;
    for (auto* operand : {&a, &b, &c}) {
      int size =
          i <= static_cast<int>(operand->ndim()) ? operand->shape(-i) : 1;
      axis.strides[n++] = size == 1 ? 0 : operand->strides(-i);
    }
    append(axes, axis);
  }
  return axes;
}

} // namespace mlx_norms
