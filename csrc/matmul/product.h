// Copyright © 2026 mlx_norms contributors
//
// What ops that compute C = A B have in common: their derivatives are products
// by the same op. The inputs are arrays [..., M, K] and [..., K, N] of one
// dtype, whose batch axes broadcast.

#pragma once

#include "csrc/op/node.h"

namespace mlx_norms {

// Throws std::invalid_argument, in the name of the op, if a and b cannot be
// multiplied.
void check_factors(const char* op, const array& a, const array& b);

mx::Shape product_shape(const array& a, const array& b);

// The gradient of `like`, summed over the matrices it was broadcast to.
array sum_over_batch(const array& gradient, const array& like, mx::Stream s);

// The mapped axis in front of all batch axes, including those that only the
// other factor has.
Arrays
mapped_factors(Arrays factors, const std::vector<int>& axes, mx::Stream s);

// The output of the op for a and b, either of which may have a single axis.
template <typename T>
array product_by(T op, array a, array b, mx::Stream s) {
  std::vector<int> vectors; // axes of C to be removed
  if (a.ndim() == 1) {
    a = mx::expand_dims(a, 0, s);
    vectors.push_back(-2);
  }
  if (b.ndim() == 1) {
    b = mx::expand_dims(b, 1, s);
    vectors.push_back(-1);
  }
  auto c = node(std::move(op), {std::move(a), std::move(b)}, s)[0];
  return vectors.empty() ? c : mx::squeeze(c, vectors, s);
}

template <typename T>
struct Product : OpOf<T> {
  explicit Product(mx::Dtype dtype) : OpOf<T>(Dtypes{dtype}) {}

  bool operator==(const Product&) const = default;

  // Multiplies any two arrays, either of which may have a single axis.
  virtual array times(const array& a, const array& b, mx::Stream s) const = 0;

  bool has_sample() const override {
    return false;
  }
  // Their shapes may not fit.
  mx::Shape shape(const Arrays& inputs, size_t) const override {
    this->check(inputs);
    return product_shape(inputs[0], inputs[1]);
  }

  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums,
      mx::Stream s) const override {
    Arrays terms;
    for (size_t i = 0; i < argnums.size(); ++i) {
      auto factors = primals;
      factors[argnums[i]] = tangents[i];
      terms.push_back(times(factors[0], factors[1], s));
    }
    return {terms.size() == 1 ? terms[0] : mx::add(terms[0], terms[1], s)};
  }

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays&,
      mx::Stream s) const override {
    const auto& [a, b, dc] = std::tie(primals[0], primals[1], cotangents[0]);
    auto transposed = [&](const array& of) {
      return mx::swapaxes(of, -2, -1, s);
    };
    Arrays gradients;
    for (int i : argnums) {
      auto gradient =
          i == 0 ? times(dc, transposed(b), s) : times(transposed(a), dc, s);
      gradients.push_back(sum_over_batch(gradient, primals[i], s));
    }
    return gradients;
  }

  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override {
    auto factors = mapped_factors(inputs, axes, s);
    return {times(factors[0], factors[1], s)};
  }
};

} // namespace mlx_norms
