// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/primitive.h"

#include <numeric>

#include "csrc/common/backend.h"
#include "csrc/common/checks.h"
#include "csrc/matmul/plan.h"
#include "csrc/matmul/self_check.h"

namespace mlx_norms {

namespace {

array transposed(const array& a, mx::Stream s) {
  return mx::swapaxes(a, -2, -1, s);
}

// The gradient of `like` from that of each matrix it was broadcast to.
array sum_over_batch(const array& gradient, const array& like, mx::Stream s) {
  int n_new = gradient.ndim() - like.ndim();
  std::vector<int> new_axes(n_new);
  std::iota(new_axes.begin(), new_axes.end(), 0);
  auto sum = gradient;
  if (n_new > 0) {
    sum = mx::sum(sum, new_axes, /* keepdims= */ false, s);
  }
  std::vector<int> shared_axes;
  for (size_t i = 0; i + 2 < like.ndim(); ++i) {
    if (like.shape(i) != sum.shape(i)) {
      shared_axes.push_back(i);
    }
  }
  if (!shared_axes.empty()) {
    sum = mx::sum(sum, shared_axes, /* keepdims= */ true, s);
  }
  return sum;
}

mx::Shape batch_of(const array& a) {
  return mx::Shape(a.shape().begin(), a.shape().end() - 2);
}

const std::vector<mx::Dtype> kDtypes = {mx::float32, mx::float16, mx::bfloat16};

bool is_rung(const Rung& kernel) {
  return find_rung(sgemm_rungs(), kernel.name) == &kernel;
}

const Rung& gemv() {
  return *find_rung(product_kernels(), "gemv");
}

// Whether gemv takes it.
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
  bool many = !few || a.ndim() > 2; // a batch can be rows
  return (!few || agrees(a.dtype(), /* gemv= */ true, s)) &&
      (!many || agrees(a.dtype(), /* gemv= */ false, s));
}

} // namespace

const std::vector<Rung>& product_kernels() {
  static const std::vector<Rung> kernels = {
      {"simdgroup_blocked",
       "loads a multiply: blocks of tiles are factors of several products",
       kDtypes},
      {"gemv",
       "tiles of few rows: all that counts then is to read b once",
       kDtypes}};
  return kernels;
}

const Rung& kernel_by_shape() {
  static const Rung kernel = {"auto", "", kDtypes};
  return kernel;
}

array product(const Rung& kernel, array a, array b, mx::Stream s) {
  if (&kernel == &kernel_by_shape() && !may_choose(a, b, s)) {
    return mx::matmul(a, b, s);
  }
  std::vector<int> vectors; // axes of C that are not asked for
  if (a.ndim() == 1) {
    a = mx::expand_dims(a, 0, s);
    vectors.push_back(-2);
  }
  if (b.ndim() == 1) {
    b = mx::expand_dims(b, 1, s);
    vectors.push_back(-1);
  }
  Arrays inputs{a, b};
  if (is_rung(kernel)) {
    for (auto& input : inputs) {
      input = mx::contiguous(input, /* allow_col_major= */ false, s);
    }
  }
  auto node = std::make_shared<Product>(s, kernel);
  auto shape = node->output_shapes(inputs)[0];
  array c(std::move(shape), a.dtype(), std::move(node), std::move(inputs));
  return vectors.empty() ? c : mx::squeeze(c, vectors, s);
}

void check_product(const array& a, const array& b, const Rung* kernel) {
  const char* op = "matmul";
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
  if (kernel == &gemv() && !is_gemv(a, b)) {
    refuse(
        op,
        "kernel \"gemv\" takes at most " + std::to_string(kGemvRows) +
            " rows of a, or columns of b, but a has shape " + text(a.shape()) +
            " and b " + text(b.shape()) + ".");
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
    terms.push_back(product(kernel_, factors[0], factors[1], stream()));
  }
  return {terms.size() == 1 ? terms[0] : mx::add(terms[0], terms[1], stream())};
}

Arrays Product::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  const auto& [a, b, dc] = std::tie(primals[0], primals[1], cotangents[0]);
  // Whose factors may have more rows.
  const auto& kernel = &kernel_ == &gemv() ? kernel_by_shape() : kernel_;
  Arrays gradients;
  for (int i : argnums) {
    auto gradient = i == 0
        ? product(kernel, dc, transposed(b, stream()), stream())
        : product(kernel, transposed(a, stream()), dc, stream());
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
      // In front of all batch axes, those that the other one has, too.
      factors[i] = mx::moveaxis(inputs[i], axes[i], 0, stream());
      for (int n = ndim(i); n < most; ++n) {
        factors[i] = mx::expand_dims(factors[i], 1, stream());
      }
    }
  }
  return {{product(kernel_, factors[0], factors[1], stream())}, {0}};
}

bool Product::is_equivalent(const Primitive& other) const {
  return &kernel_ == &static_cast<const Product&>(other).kernel_;
}

std::vector<mx::Shape> Product::output_shapes(const Arrays& inputs) {
  // Shapeless compile asks at every call, where shapes may no longer fit.
  const auto& [a, b] = std::tie(inputs[0], inputs[1]);
  check_product(a, b, &kernel_);
  auto shape = mx::broadcast_shapes(batch_of(a), batch_of(b));
  shape.push_back(a.shape(-2));
  shape.push_back(b.shape(-1));
  return {shape};
}

} // namespace mlx_norms
