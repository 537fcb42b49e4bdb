// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/batch_axes.h"

namespace mlx_norms {

std::vector<BatchAxis>
batch_axes(const mx::array& a, const mx::array& b, const mx::array& c) {
  std::vector<BatchAxis> axes;
  for (int i = 3; i <= static_cast<int>(c.ndim()); ++i) {
    BatchAxis axis{c.shape(-i), {}};
    if (axis.size == 1) {
      continue;
    }
    size_t n = 0;
    for (auto* operand : {&a, &b, &c}) {
      int size =
          i <= static_cast<int>(operand->ndim()) ? operand->shape(-i) : 1;
      axis.strides[n++] = size == 1 ? 0 : operand->strides(-i);
    }
    if (!axes.empty() && axes.back().continues_in(axis)) {
      axes.back().size *= axis.size;
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

} // namespace mlx_norms
