// Copyright © 2026 mlx_norms contributors
//
// mx::sum and mx::mean of any shape, and broadcasts whose gradients are such
// sums. MLX 0.32.4's own sums leave those of an empty array uninitialized on
// the CPU and, in shapeless compile, corrupt memory if each of the axes has one
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

// `a` broadcast against `like`, which has no derivative.
array with_axes_of(const array& a, const array& like, mx::Stream stream);

// The sum over the axes that `like`, which broadcasts to a's shape, lacks or
// has with one element: in its shape.
array sum_to(const array& a, const array& like, mx::Stream stream);

// Outputs that were just computed from these inputs in MLX's ops; of empty
// ones, and in a shapeless trace, with nodes whose derivatives are right for
// any size. MLX's leave out sums over axes that have one element in the trace,
// and those of what is empty are not initialized.
Arrays for_any_size(
    Arrays outputs,
    std::initializer_list<const Arrays*> inputs,
    mx::Stream stream);

} // namespace mlx_norms
