// Copyright © 2026 mlx_norms contributors
//
// mx::sum and mx::mean of any shape, and a broadcast whose gradient is such a
// sum. MLX 0.32.4's own sums leave those of an empty array uninitialized on the
// CPU and, in shapeless compile, corrupt memory if each of the axes has one
// element but not all axes are added up.

#pragma once

#include "csrc/common/types.h"
#include "mlx/utils.h"

namespace mlx_norms {

array sum_over(
    const array& a,
    const std::vector<int>& axes,
    bool keepdims,
    mx::Stream stream);

// Over one axis, which stays.
array sum_over(const array& a, int axis, mx::Stream stream);
array mean_over(const array& a, int axis, mx::Stream stream);

// `a` with the leading axes of `like`, whose other axes have one element.
array with_axes_of(const array& a, const array& like, mx::Stream stream);

} // namespace mlx_norms
