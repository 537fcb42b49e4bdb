// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/matmul.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/matmul/plan.h"
#include "csrc/matmul/self_check.h"
#include "csrc/op/node.h"

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
  auto passes = [&](ProductKernel kernel, int64_t rows, int64_t columns) {
    return agrees(
        text(kernel),
        kernel == ProductKernel::Gemv,
        {rows, columns, a.shape(-1)},
        a.dtype(),
        [kernel](const array& left, const array& right, mx::Stream stream) {
          return product(kernel, left, right, stream);
        },
        s);
  };
  int64_t rows = a.ndim() == 1 ? 1 : a.shape(-2);
  int64_t columns = b.ndim() == 1 ? 1 : b.shape(-1);
  auto passes_of = [&](int64_t rows) {
    return rows <= kGemvRows   ? passes(ProductKernel::Gemv, rows, columns)
        : columns <= kGemvRows ? passes(ProductKernel::Gemv, columns, rows)
                               : passes(ProductKernel::Blocked, rows, columns);
  };
  // Those of a batch become rows, if the strides allow it.
  int64_t all_rows = rows;
  for (int i = 3; i <= static_cast<int>(a.ndim()); ++i) {
    bool is_shared = static_cast<int>(b.ndim()) < i || b.shape(-i) == 1;
    int64_t more = all_rows * a.shape(-i);
    if (!is_shared || (columns <= kGemvRows && more > kGemvRows)) {
      break;
    }
    all_rows = more;
  }
  return passes_of(rows) && (all_rows == rows || passes_of(all_rows));
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
  Matmul op(by, dtypes[0]);
  return op.Product::vjp(primals, cotangents, argnums, outputs, s);
}

} // namespace mlx_norms
