// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/product.h"

#include <algorithm>
#include <numeric>

#include "csrc/common/checks.h"
#include "csrc/common/sum.h"

namespace mlx_norms {

void check_factors(const char* op, const array& a, const array& b) {
  for (auto [name, operand] : {std::pair{"a", &a}, std::pair{"b", &b}}) {
    if (operand->ndim() == 0) {
      refuse(
          op, std::string(name) + " must have at least 1 axis but has none.");
    }
  }
  int axis = b.ndim() == 1 ? -1 : -2;
  if (a.shape(-1) != b.shape(axis)) {
    refuse(
        op,
        "the last axis of a must be as long as the " +
            std::string(axis == -1 ? "only" : "last but one") +
            " of b, but a has shape " + text(a.shape()) + " and b " +
            text(b.shape()) + ".");
  }
  for (int i = 3; i <= static_cast<int>(std::min(a.ndim(), b.ndim())); ++i) {
    if (a.shape(-i) != b.shape(-i) && a.shape(-i) != 1 && b.shape(-i) != 1) {
      refuse(
          op,
          "the batch axes of a and b must broadcast, but a has shape " +
              text(a.shape()) + " and b " + text(b.shape()) + ".");
    }
  }
}

mx::Shape product_shape(const array& a, const array& b) {
  auto batch_of = [](const array& of) {
    return mx::Shape(of.shape().begin(), of.shape().end() - 2);
  };
  auto shape = mx::broadcast_shapes(batch_of(a), batch_of(b));
  shape.push_back(a.shape(-2));
  shape.push_back(b.shape(-1));
  return shape;
}

array sum_over_batch(const array& gradient, const array& like, mx::Stream s) {
  int n_new = gradient.ndim() - like.ndim();
  std::vector<int> new_axes(n_new);
  std::iota(new_axes.begin(), new_axes.end(), 0);
  auto of_own = sum_over(gradient, new_axes, /* keepdims= */ false, s);
  std::vector<int> shared_axes;
  for (size_t i = 0; i + 2 < like.ndim(); ++i) {
    if (like.shape(i) != of_own.shape(i)) {
      shared_axes.push_back(i);
    }
  }
  return sum_over(of_own, shared_axes, /* keepdims= */ true, s);
}

Arrays
mapped_factors(Arrays factors, const std::vector<int>& axes, mx::Stream s) {
  auto ndim = [&](int i) -> int { return factors[i].ndim() - (axes[i] >= 0); };
  int own[] = {ndim(0), ndim(1)};
  int max = std::max(own[0], own[1]);
  for (int i = 0; i < 2; ++i) {
    if (axes[i] >= 0) {
      factors[i] = mx::moveaxis(factors[i], axes[i], 0, s);
      for (int n = own[i]; n < max; ++n) {
        factors[i] = mx::expand_dims(factors[i], 1, s);
      }
    }
  }
  return factors;
}

} // namespace mlx_norms
