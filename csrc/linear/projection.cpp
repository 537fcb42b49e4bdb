// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/projection.h"

#include "csrc/common/axes.h"
#include "csrc/common/pending.h"
#include "csrc/common/sum.h"
#include "csrc/linear/mlx_product.h"

namespace mlx_norms {

namespace {

// x w + bias. Where a trace does not know shapes, addmm would make its result's
// part of the graph and, on CUDA, divide by the size of an empty one.
array product_and_bias(
    const array& x,
    const array& columns,
    const array& bias,
    mx::Stream s) {
  if (!in_shapeless_trace(x)) {
    return mlx_addmm(bias, x, columns, s);
  }
  auto y = mx::matmul(x, columns, s);
  return mx::add(y, with_axes_of(bias, sum_over(x, -1, s), s), s);
}

// The columns for each matrix of x. Where a trace does not know how many there
// are, MLX's matmul would add up the gradients of each by a sum of its own.
array columns_of_matrices(const array& columns, const array& x, mx::Stream s) {
  if (x.ndim() < 3 || !in_shapeless_trace(x)) {
    return columns;
  }
  auto one = sum_over(x, {-2, -1}, /* keepdims= */ true, s);
  return with_axes_of(columns, one, s);
}

array project_dense(
    const array& weight,
    const array* bias,
    const array& x,
    mx::Stream s) {
  auto columns = columns_of_matrices(mx::transpose(weight, s), x, s);
  return bias ? product_and_bias(x, columns, *bias, s)
              : mx::matmul(x, columns, s);
}

} // namespace

mx::Dtype projected_dtype(const ProjectionInputs& in, mx::Dtype x) {
  auto dtype =
      mx::promote_types(x, in.scales ? in.scales->dtype() : in.weight.dtype());
  for (auto* other : {in.biases, in.bias}) {
    if (other) {
      dtype = mx::promote_types(dtype, other->dtype());
    }
  }
  return dtype;
}

array project(
    const Projection& p,
    const ProjectionInputs& in,
    const array& x,
    mx::Stream s) {
  auto shape = x.shape();
  shape.back() = in.weight.shape(0);
  bool empty = x.shape(-1) > 0 && (x.size() == 0 || shape.back() == 0);
  if (empty && !in_shapeless_trace(x)) {
    // On a GPU MLX's matmuls divide by the result's size.
    return mx::zeros(shape, projected_dtype(in, x.dtype()), s);
  }
  if (!p.bits) {
    return project_dense(in.weight, in.bias, x, s);
  }
  const auto& [w, scales, biases] = std::tie(in.weight, *in.scales, *in.biases);
  if (x.size() == 0) {
    // MLX's quantized_matmul divides by the number of rows.
    auto weight = mx::dequantize(
        w,
        scales,
        biases,
        p.group_size,
        p.bits,
        "affine",
        std::nullopt,
        std::nullopt,
        s);
    return project_dense(weight, in.bias, x, s);
  }
  // MLX's CUDA kernels accept only dense arrays.
  auto of_groups = dense(biases, s);
  auto y = mlx_product(
      x,
      dense(w, s),
      dense(scales, s),
      &of_groups,
      {.group_size = p.group_size, .bits = p.bits},
      s);
  return in.bias ? mx::add(y, *in.bias, s) : y;
}

} // namespace mlx_norms
