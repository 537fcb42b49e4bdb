// Copyright © 2026 mlx_norms contributors

#include "csrc/common/axes.h"

#include <algorithm>

namespace mlx_norms {

void append(Axes& axes, const Axis& inner) {
  if (inner.size == 1) {
    return;
  }
  if (!axes.empty()) {
    auto& last = axes.back();
    bool merges = true;
    for (size_t i = 0; i < inner.strides.size(); ++i) {
      merges &= last.strides[i] == inner.size * inner.strides[i];
    }
    if (merges) {
      last = {last.size * inner.size, inner.strides};
      return;
    }
  }
  axes.push_back(inner);
}

Steps offsets_at(const Axes& axes, int64_t index) {
  Steps offsets = {};
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    for (size_t i = 0; i < offsets.size(); ++i) {
      offsets[i] += index % axis->size * axis->strides[i];
    }
    index /= axis->size;
  }
  return offsets;
}

int64_t size_of(const Axes& axes) {
  int64_t size = 1;
  for (const auto& axis : axes) {
    size *= axis.size;
  }
  return size;
}

Axes row_axes(std::span<const array* const> arrays) {
  Axes axes;
  const auto& shape = arrays[0]->shape();
  int ndim = shape.size();
  for (int i = 0; i + 1 < ndim; ++i) {
    Axis axis{shape[i], {}};
    for (size_t n = 0; n < arrays.size(); ++n) {
      auto* a = arrays[n];
      int own = a ? i - ndim + static_cast<int>(a->ndim()) : -1;
      if (own >= 0 && a->shape()[own] == shape[i]) {
        axis.strides[n] = a->strides()[own];
      }
    }
    append(axes, axis);
  }
  if (axes.empty()) {
    axes.push_back({1, {}});
  }
  return axes;
}

array broadcast_view(const array& a, const mx::Shape& shape) {
  if (a.shape() == shape) {
    return a;
  }
  mx::Strides strides(shape.size(), 0);
  int missing = static_cast<int>(shape.size()) - static_cast<int>(a.ndim());
  for (int i = std::max(missing, 0); i < static_cast<int>(shape.size()); ++i) {
    if (a.shape(i - missing) != 1) {
      strides[i] = a.strides(i - missing);
    }
  }
  array view(shape, a.dtype(), nullptr, {});
  view.copy_shared_buffer(a, strides, {false, false, false}, a.data_size());
  return view;
}

array dense(array a, mx::Stream s) {
  if (a.is_available() && a.flags().row_contiguous) {
    return a;
  }
  return mx::contiguous(a, /* allow_col_major= */ false, s);
}

} // namespace mlx_norms
