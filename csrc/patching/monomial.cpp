// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/monomial.h"

#include <algorithm>
#include <cmath>

#include "csrc/common/checks.h"

namespace mlx_norms {

namespace {

const Monomial kUnknown = Monomial::unknown();

using NumberIn = std::optional<mx::Dtype>;

// The dtype, of two in which numbers multiply, that is wider.
NumberIn wider(const NumberIn& a, const NumberIn& b) {
  return !a || b == mx::float32 ? (b ? b : a) : a;
}

// A sum over rows times what may make it their mean.
Monomial averaged(M sum, bool is_mean) {
  auto mean = sum;
  mean.of->mean = true;
  return sum.of->mean || sum.of->has_eps || !is_mean ? kUnknown : mean;
}

// Times a number or over it. The length is known in the dtype alone.
Monomial scaled(M a, float number, bool over, int length, mx::Dtype dtype) {
  if (a.is_moment()) {
    auto exact = over ? static_cast<float>(length) : 1.0f / length;
    return averaged(a, number == rounded_to(exact, dtype));
  }
  if (!a.is_product() && !(a.is_root() && number > 0.0f)) {
    return kUnknown;
  }
  auto product = a;
  product.number = over ? a.number / number : a.number * number;
  product.widened = false;
  product.number_in = a.is_number() ? NumberIn() : wider(a.number_in, dtype);
  return product;
}

Monomial over_root(M a, M root) {
  if (a.halves != 0) {
    return kUnknown;
  }
  auto quotient = a;
  quotient.of = root.of;
  quotient.halves = -1;
  quotient.number = a.number / root.number;
  quotient.number_in = wider(a.number_in, root.number_in);
  quotient.widened = false;
  return quotient;
}

// Whether the number is the square of one over the root of the length, as the
// dtype has it.
bool is_one_over(int length, float number, mx::Dtype dtype) {
  auto root = std::sqrt(number);
  auto exact = 1.0f / std::sqrt(static_cast<float>(length));
  return std::abs(root - exact) <= kRootError * exact ||
      root == rounded_to(exact, dtype);
}

Monomial with_offset(M weight, float offset) {
  auto sum = weight;
  sum.weight->offset += offset;
  return sum;
}

bool is_mean_of_x(M a) {
  return a.is_moment() && !a.of->squares && a.of->mean;
}

} // namespace

Monomial multiply(M a, M b, int length, mx::Dtype dtype) {
  if (a.is_multiple_of_x() && b.is_multiple_of_x()) {
    auto squares = a;
    squares.x = 2;
    squares.number = a.number * b.number;
    return a.centered == b.centered ? squares : kUnknown;
  }
  if (a.is_number() && !b.is_number()) {
    return multiply(b, a, length, dtype);
  }
  if (b.is_number()) {
    return scaled(a, b.number, /* over= */ false, length, dtype);
  }
  if (is_mean_of_x(a) && is_mean_of_x(b) && a.of->axes == b.of->axes) {
    return square(a);
  }
  if (!a.is_product() || !b.is_product() || (a.x && b.x) ||
      (a.halves && b.halves) || (a.weight && b.weight)) {
    return kUnknown;
  }
  auto product = a.x ? a : b;
  product.number = a.number * b.number;
  product.halves = a.halves + b.halves;
  product.of = a.halves ? a.of : b.of;
  product.weight = a.weight ? a.weight : b.weight;
  product.rounded = a.rounded || b.rounded;
  product.widened = false;
  product.number_in = wider(a.number_in, b.number_in);
  return product;
}

Monomial divide(M a, M b, int length, mx::Dtype dtype) {
  if (b.is_number()) {
    return scaled(a, b.number, /* over= */ true, length, dtype);
  }
  if (!b.is_root() || !a.is_product()) {
    return kUnknown;
  }
  auto above = a;
  if (a.is_number() && a.number != 1.0f) {
    above.number_in = dtype;
  }
  return over_root(above, b);
}

Monomial add(M a, M b) {
  if (a.is_number()) {
    return b.is_number() ? Monomial::constant(a.number + b.number) : add(b, a);
  }
  if (b.is_number()) {
    if (a.is_weight()) {
      return with_offset(a, b.number);
    }
    if (!a.is_moment() || !a.of->squares || a.of->has_eps) {
      return kUnknown;
    }
    auto sum = a;
    sum.of->eps = b.number;
    sum.of->has_eps = true;
    return sum;
  }
  if (a.is_weight() && !b.is_weight()) {
    return add(b, a);
  }
  bool is_shifted =
      b.is_weight() && b.weight->offset == 0.0f && a.is_normalized() && !a.bias;
  auto sum = a;
  sum.bias = b.weight;
  return is_shifted ? sum : kUnknown;
}

Monomial subtract(M a, M b) {
  if (a.is_x() && !a.centered && is_mean_of_x(b)) {
    auto centered = a;
    centered.centered = b.of->axes;
    return centered;
  }
  bool is_variance = a.is_moment() && b.known && b.halves == 4 &&
      a.of->squares && a.of->mean && !a.of->centered && !a.of->has_eps &&
      a.of->axes == b.of->axes;
  if (is_variance) {
    auto variance = a;
    variance.of->centered = b.of->axes;
    return variance;
  }
  return b.is_number() && (a.is_number() || a.is_weight())
      ? add(a, Monomial::constant(-b.number))
      : kUnknown;
}

Monomial maximum(M a, M b) {
  if (a.is_number()) {
    return b.is_number() ? Monomial::constant(std::max(a.number, b.number))
                         : maximum(b, a);
  }
  bool may_be = b.is_number() && b.number >= 0.0f &&
      (a.is_root() || (a.is_moment() && a.of->squares)) && !a.of->has_eps;
  if (!may_be) {
    return kUnknown;
  }
  auto bounded = a;
  if (a.is_root() || b.number > 0.0f) { // no moment is negative
    bounded.of->eps = a.is_root() ? b.number / a.number : std::sqrt(b.number);
    bounded.of->has_eps = bounded.of->eps_bounds = true;
  }
  return bounded;
}

Monomial power(M base, M exponent) {
  auto number = exponent.is_number() ? exponent.number : 0.0f;
  return number == 2.0f                   ? square(base)
      : number == 0.5f                    ? square_root(base)
      : number == -0.5f                   ? one_over_root(base)
      : number == -1.0f && base.is_root() ? over_root({}, base)
                                          : kUnknown;
}

Monomial square(M a) {
  auto squared = a;
  if (a.is_multiple_of_x() || (a.known && a.magnitude)) {
    squared.x = 2;
    squared.magnitude = false;
    squared.number = a.number * a.number;
    return squared;
  }
  squared.halves = 4;
  return is_mean_of_x(a) ? squared : kUnknown;
}

Monomial magnitude(M a) {
  auto magnitude = a;
  magnitude.magnitude = true;
  return a.is_x() ? magnitude : kUnknown;
}

Monomial sum(M a, Axes axes, int length, mx::Dtype dtype) {
  bool is_of_x = a.is_x() && !a.centered;
  if (!is_of_x && !(a.known && a.x == 2)) {
    return kUnknown;
  }
  Statistic of{.squares = a.x == 2, .centered = a.centered, .axes = axes};
  Monomial sum{.halves = 2, .of = of};
  return a.number == 1.0f ? sum
                          : averaged(sum, is_one_over(length, a.number, dtype));
}

Monomial square_root(M a) {
  auto root = a;
  root.halves = 1;
  return a.is_moment() && a.of->squares ? root : kUnknown;
}

Monomial one_over_root(M a) {
  return a.is_moment() && a.of->squares ? over_root({}, square_root(a))
                                        : kUnknown;
}

Monomial cast(M a, mx::Dtype from, mx::Dtype to, mx::Dtype of_x) {
  bool narrows = to != mx::float32;
  if (!a.known || !takes_dtype(to) || !takes_dtype(from) ||
      (narrows && from != mx::float32)) {
    return kUnknown;
  }
  bool rounds_x = narrows && // to 16 bits
      (a.magnitude ||
       (a.is_multiple_of_x() && !(a.is_x() && to == of_x && !a.centered)));
  auto same = a;
  if (a.bias) {
    same.widened = !narrows;
  } else if (a.is_product() && !a.is_multiple_of_x()) {
    same.widened = !narrows && a.is_normalized();
  }
  if (a.is_number()) {
    same.number = rounded_to(a.number, to);
  }
  return rounds_x ? kUnknown : same;
}

} // namespace mlx_norms
