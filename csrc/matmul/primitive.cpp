// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/primitive.h"

#include <algorithm>
#include <numeric>

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/common/sum.h"
#include "csrc/matmul/plan.h"
#include "csrc/matmul/self_check.h"

namespace mlx_norms {

namespace {

array transposed(const array& a, mx::Stream s) {
  return mx::swapaxes(a, -2, -1, s);
}

// The gradient of `like`, summed over the matrices it was broadcast to.
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

mx::Shape batch_of(const array& a) {
  return mx::Shape(a.shape().begin(), a.shape().end() - 2);
}

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
  return (!few || agrees(a.dtype(), /* gemv= */ true, s)) &&
      (!many || agrees(a.dtype(), /* gemv= */ false, s));
}

} // namespace

array output_of(std::shared_ptr<Product> node, array a, array b) {
  auto s = node->stream();
  std::vector<int> vectors; // axes of C to be removed
  if (a.ndim() == 1) {
    a = mx::expand_dims(a, 0, s);
    vectors.push_back(-2);
  }
  if (b.ndim() == 1) {
    b = mx::expand_dims(b, 1, s);
    vectors.push_back(-1);
  }
  Arrays inputs{a, b};
  auto shape = node->output_shapes(inputs)[0];
  array c(std::move(shape), a.dtype(), std::move(node), std::move(inputs));
  return vectors.empty() ? c : mx::squeeze(c, vectors, s);
}

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

Arrays Product::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  Arrays terms;
  for (size_t i = 0; i < argnums.size(); ++i) {
    auto factors = primals;
    factors[argnums[i]] = tangents[i];
    terms.push_back(times(factors[0], factors[1]));
  }
  return {terms.size() == 1 ? terms[0] : mx::add(terms[0], terms[1], stream())};
}

Arrays Product::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  const auto& [a, b, dc] = std::tie(primals[0], primals[1], cotangents[0]);
  Arrays gradients;
  for (int i : argnums) {
    auto gradient = i == 0 ? times(dc, transposed(b, stream()))
                           : times(transposed(a, stream()), dc);
    gradients.push_back(sum_over_batch(gradient, primals[i], stream()));
  }
  return gradients;
}

std::pair<Arrays, std::vector<int>> Product::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto ndim = [&](int i) -> int { return inputs[i].ndim() - (axes[i] >= 0); };
  int most = std::max(ndim(0), ndim(1));
  auto factors = inputs;
  for (int i = 0; i < 2; ++i) {
    if (axes[i] >= 0) {
      // In front of all batch axes, including those that only the other one
      // has.
      factors[i] = mx::moveaxis(inputs[i], axes[i], 0, stream());
      for (int n = ndim(i); n < most; ++n) {
        factors[i] = mx::expand_dims(factors[i], 1, stream());
      }
    }
  }
  return {{times(factors[0], factors[1])}, {0}};
}

std::vector<mx::Shape> Product::output_shapes(const Arrays& inputs) {
  // Shapeless compile asks again at every call, whose shapes may not fit.
  const auto& [a, b] = std::tie(inputs[0], inputs[1]);
  check(a, b);
  auto shape = mx::broadcast_shapes(batch_of(a), batch_of(b));
  shape.push_back(a.shape(-2));
  shape.push_back(b.shape(-1));
  return {shape};
}

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
  return output_of(std::make_shared<Matmul>(s, kernel), a, b);
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

array Matmul::times(const array& a, const array& b) {
  return product(kernel_, a, b, stream());
}

void Matmul::check(const array& a, const array& b) const {
  check_product(a, b, kernel_);
}

Arrays Matmul::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  if (kernel_ == ProductKernel::Gemv) {
    // The factors of a gradient may have too many rows for gemv.
    Matmul by_shape(stream(), ProductKernel::ByShape);
    return by_shape.vjp(primals, cotangents, argnums, outputs);
  }
  return Product::vjp(primals, cotangents, argnums, outputs);
}

bool Matmul::is_equivalent(const Primitive& other) const {
  return kernel_ == static_cast<const Matmul&>(other).kernel_;
}

} // namespace mlx_norms
