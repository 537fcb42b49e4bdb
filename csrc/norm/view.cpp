// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/view.h"

namespace mlx_norms {

View::View(const NormSpec& spec, const mx::array& x) {
  int ndim = x.ndim();
  auto product = [&](int begin, int end) {
    int64_t size = 1;
    for (int i = begin; i < end; ++i) {
      size *= x.shape(i);
    }
    return size;
  };
  int channels = x.shape(-1);
  if (spec.grouped) {
    outer = product(0, spec.sample_axes);
    a = product(spec.sample_axes, ndim - 1);
    kept = spec.groups ? spec.groups : channels;
    b = spec.groups ? channels / spec.groups : 1;
  } else if (spec.axis != -1) {
    int axis = ndim + spec.axis;
    outer = product(0, axis);
    a = x.shape(axis);
    kept = product(axis + 1, ndim);
  } else {
    outer = product(0, ndim - 1);
    b = channels;
  }
}

} // namespace mlx_norms
