// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/matmul.h"

#include <algorithm>

#include "csrc/common/checks.h"
#include "csrc/matmul/plan.h"
#include "csrc/matmul/self_check.h"
#include "csrc/op/define_node.h"

namespace mlx_norms {

namespace {

// Whether gemv supports these shapes.
bool is_gemv(const array& a, const array& b) {
  int rows = a.ndim() == 1 ? 1 : a.shape(-2);
  int columns = b.ndim() == 1 ? 1 : b.shape(-1);
  return std::min(rows, columns) <= kGemvRows;
}

// Whether the kernels that may be chosen can be used.
bool may_choose(const array& a, const array& b, mx::Stream s) {
  if (backend_of(s) != Backend::Metal) {
    return true;
  }
  bool few = is_gemv(a, b);
  bool many = !few || a.ndim() > 2; // a batch may become rows
  auto passes = [&](ProductKernel kernel) {
    return agrees(
        text(kernel),
        kernel == ProductKernel::Gemv,
        a.dtype(),
        [kernel](const array& left, const array& right, mx::Stream stream) {
          return product(kernel, left, right, stream);
        },
        s);
  };
  return (!few || passes(ProductKernel::Gemv)) &&
      (!many || passes(ProductKernel::Blocked));
}

} // namespace

const char* text(ProductKernel kernel) {
  switch (kernel) {
    case ProductKernel::ByShape:
      return "auto";
    case ProductKernel::Gemv:
      return "gemv";
    case ProductKernel::Blocked:
      return "simdgroup_blocked";
  }
  return "";
}

array product(
    ProductKernel kernel,
    const array& a,
    const array& b,
    mx::Stream s) {
  if (kernel == ProductKernel::ByShape && !may_choose(a, b, s)) {
    return mx::matmul(a, b, s);
  }
  return product_by(Matmul(kernel, a.dtype()), a, b, s);
}

void check_product(const array& a, const array& b, ProductKernel kernel) {
  const char* op = "matmul";
  check_factors(op, a, b);
  if (kernel == ProductKernel::Gemv && !is_gemv(a, b)) {
    refuse(
        op,
        "kernel \"gemv\" takes at most " + std::to_string(kGemvRows) +
            " rows of a, or columns of b, but a has shape " + text(a.shape()) +
            " and b " + text(b.shape()) + ".");
  }
}

void Matmul::check(const Arrays& inputs) const {
  check_product(inputs[0], inputs[1], kernel);
}

LaunchPlan
Matmul::plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s) const {
  auto plan = kernel == ProductKernel::Gemv ? plan_gemv
      : kernel == ProductKernel::Blocked    ? plan_blocked
                                            : plan_matmul;
  return plan(inputs[0], inputs[1], outputs[0], s);
}

array Matmul::times(const array& a, const array& b, mx::Stream s) const {
  return product(kernel, a, b, s);
}

Arrays Matmul::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs,
    mx::Stream s) const {
  // The factors of a gradient may have too many rows for gemv.
  auto by = kernel == ProductKernel::Gemv ? ProductKernel::ByShape : kernel;
  Matmul op(by, dtype);
  return op.Product::vjp(primals, cotangents, argnums, outputs, s);
}

MLX_NORMS_DEFINE_NODE(Matmul)

} // namespace mlx_norms
