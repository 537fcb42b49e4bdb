// Copyright © 2026 mlx_norms contributors

#include "csrc/common/memory_layout.h"

#include <numeric>

#include "csrc/common/axes.h"
#include "mlx/ops.h"

namespace mlx_norms {

MemoryLayout MemoryLayout::of(const array& a) {
  MemoryLayout layout;
  if (a.ndim() == 0 || a.size() == 0) {
    return layout;
  }
  layout.offset = a.offset() % 16;
  if (a.flags().row_contiguous) {
    return layout;
  }
  layout.steps = a.shape(-1) > 1 && a.strides(-1) != 1;
  auto axes = row_axes(a);
  bool adjoin = !layout.steps && axes.size() == 1 &&
      (axes[0].size == 1 || axes[0].strides[0] == a.shape(-1));
  for (const auto& axis : axes) {
    if (!adjoin && axis.size > 1) {
      layout.axes += 1;
      layout.alignment = std::gcd(
          layout.alignment,
          static_cast<int>(axis.strides[0] % 16 * a.itemsize()));
    }
  }
  return layout;
}

array laid_out(array a, const MemoryLayout& layout, mx::Stream s) {
  if (layout == MemoryLayout{}) {
    return a;
  }
  auto shape = a.shape();
  int last = static_cast<int>(shape.size()) - 1;
  int item = a.itemsize();
  int step = layout.steps ? 2 : 1;
  if (layout.steps) {
    a = mx::repeat(a, step, last, s);
  }
  // What lies between the rows, and between those of the outer axes.
  auto whole = a.shape();
  if (layout.axes > 0) {
    do {
      whole[last] += 1;
    } while (whole[last] * item % 16 != layout.alignment % 16);
  }
  for (int i = last - 1; i > 0 && last - i < layout.axes; --i) {
    whole[i] += 1;
  }
  std::vector<std::pair<int, int>> after;
  for (int i = 0; i <= last; ++i) {
    after.emplace_back(0, whole[i] - a.shape(i));
  }
  a = mx::reshape(
      mx::pad(a, after, array(0, a.dtype()), "constant", s), {-1}, s);
  int before = layout.offset / item;
  if (before > 0) {
    a = mx::concatenate({mx::zeros({before}, a.dtype(), s), a}, 0, s);
    a = mx::slice(a, {before}, a.shape(), s);
  }
  a = mx::reshape(a, whole, s);
  mx::Shape begin(shape.size(), 0), steps(shape.size(), 1), end = shape;
  steps[last] = step;
  end[last] *= step;
  return mx::slice(a, begin, end, steps, s);
}

} // namespace mlx_norms
