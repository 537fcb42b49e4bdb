// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_values.h"

#include <algorithm>
#include <cmath>

#include "csrc/common/checks.h"

namespace mlx_norms {

namespace {

template <typename T>
const T* as(const Value& value) {
  return std::get_if<T>(&value);
}

std::optional<float> as_number(const Value& value) {
  auto* product = as<Product>(value);
  return product && product->is_number() ? std::optional(product->number)
                                         : std::nullopt;
}

const Product* as_x(const Value& value) {
  auto* product = as<Product>(value);
  return product && product->is_x() ? product : nullptr;
}

const Product* as_multiple_of_x(const Value& value) {
  auto* product = as<Product>(value);
  return product && product->is_multiple_of_x() ? product : nullptr;
}

const Product* as_weight(const Value& value) {
  auto* product = as<Product>(value);
  return product && product->is_weight() ? product : nullptr;
}

// The sum over the row's length, of which the factor is known in the dtype of
// the operation alone.
Value scaled(Moment moment, bool is_mean) {
  if (moment.mean || moment.has_eps || !is_mean) {
    return Refused{};
  }
  moment.mean = true;
  return moment;
}

// Of the dtypes in which numbers multiply the wider one.
using NumberIn = std::optional<mx::Dtype>;

NumberIn wider(const NumberIn& a, const NumberIn& b) {
  return !a || b == mx::float32 ? (b ? b : a) : a;
}

Value product_of(const Product& a, const Product& b, mx::Dtype dtype) {
  if ((a.has_x && b.has_x) || (a.over && b.over) || (a.weight && b.weight)) {
    return Refused{};
  }
  Product both = a.has_x ? a : b;
  both.number = a.number * b.number;
  both.over = a.over ? a.over : b.over;
  both.weight = a.weight ? a.weight : b.weight;
  both.rounded = a.rounded || b.rounded;
  both.widened = false;
  both.number_in = wider(a.number_in, b.number_in);
  if (a.is_number() != b.is_number()) {
    both.number_in = wider(both.number_in, dtype);
  }
  return both;
}

Value over_root(Product product, const Root& root) {
  if (product.over) {
    return Refused{};
  }
  product.over = root.of;
  product.number /= root.number;
  product.number_in = wider(product.number_in, root.number_in);
  product.widened = false;
  return product;
}

// Whether the number is the square of one over the root of the length, as the
// dtype has it.
bool is_one_over(int length, float number, mx::Dtype dtype) {
  auto root = std::sqrt(number);
  auto exact = 1.0f / std::sqrt(static_cast<float>(length));
  return std::abs(root - exact) <= kRootError * exact ||
      root == rounded_to(exact, dtype);
}

Value with_offset(const Product& weight, float offset) {
  auto sum = weight;
  sum.weight->offset += offset;
  return sum;
}

Value constant(float number) {
  Product product;
  product.number = number;
  return product;
}

} // namespace

Value multiply(const Value& a, const Value& b, int length, mx::Dtype dtype) {
  auto* x = as_multiple_of_x(a);
  auto* y = as_multiple_of_x(b);
  if (x && y) {
    return x->centered == y->centered
        ? Value(Squares{x->centered, x->number * y->number})
        : Refused{};
  }
  auto* p = as<Product>(a);
  auto* q = as<Product>(b);
  if (p && q) {
    return product_of(*p, *q, dtype);
  }
  if (p && (as<Moment>(b) || as<Root>(b))) {
    return multiply(b, a, length, dtype);
  }
  auto number = as_number(b);
  if (auto* moment = as<Moment>(a); moment && number) {
    return scaled(*moment, *number == rounded_to(1.0 / length, dtype));
  }
  if (auto* root = as<Root>(a); root && number && *number > 0.0f) {
    return Root{
        root->of, root->number * *number, wider(root->number_in, dtype)};
  }
  auto* first = as<Moment>(a);
  auto* second = as<Moment>(b);
  bool are_one_mean = first && second && first->mean && second->mean &&
      !first->squares && !second->squares && first->axis == second->axis;
  if (are_one_mean) {
    return square(a);
  }
  return Refused{};
}

Value divide(const Value& a, const Value& b, int length, mx::Dtype dtype) {
  auto number = as_number(b);
  if (auto* moment = as<Moment>(a); moment && number) {
    return scaled(*moment, *number == rounded_to(length, dtype));
  }
  auto* product = as<Product>(a);
  if (product && number) {
    Product quotient = *product;
    quotient.number /= *number;
    quotient.widened = false;
    if (!product->is_number()) {
      quotient.number_in = wider(product->number_in, dtype);
    }
    return quotient;
  }
  if (auto* root = as<Root>(b); root && product) {
    Product above = *product;
    if (product->is_number() && product->number != 1.0f) {
      above.number_in = dtype;
    }
    return over_root(above, *root);
  }
  if (auto* root = as<Root>(a); root && number && *number > 0.0f) {
    return Root{
        root->of, root->number / *number, wider(root->number_in, dtype)};
  }
  return Refused{};
}

Value add(const Value& a, const Value& b) {
  auto number = as_number(b);
  if (auto other = as_number(a)) {
    return number ? constant(*other + *number) : add(b, a);
  }
  if (auto* moment = as<Moment>(a); moment && number) {
    if (!moment->squares || moment->has_eps) {
      return Refused{};
    }
    Moment sum = *moment;
    sum.eps = *number;
    sum.has_eps = true;
    return sum;
  }
  if (auto* weight = as_weight(a); weight && number) {
    return with_offset(*weight, *number);
  }
  auto* bias = as_weight(b);
  auto* product = as<Product>(a);
  if (!bias && as_weight(a)) {
    return add(b, a);
  }
  bool is_shifted = bias && bias->weight->offset == 0.0f && product &&
      product->is_normalized();
  return is_shifted ? Value(Shifted{*product, *bias->weight}) : Refused{};
}

Value subtract(const Value& a, const Value& b) {
  auto* x = as_x(a);
  auto* mean = as<Moment>(b);
  if (x && !x->centered && mean && !mean->squares && mean->mean) {
    Product centered = *x;
    centered.centered = mean->axis;
    return centered;
  }
  auto* moment = as<Moment>(a);
  auto* squared = as<SquaredMean>(b);
  if (moment && squared && moment->squares && moment->mean &&
      !moment->centered && !moment->has_eps && moment->axis == squared->axis) {
    Moment variance = *moment;
    variance.centered = squared->axis;
    return variance;
  }
  if (auto number = as_number(b)) {
    if (auto other = as_number(a)) {
      return constant(*other - *number);
    }
    if (auto* weight = as_weight(a)) {
      return with_offset(*weight, -*number);
    }
  }
  return Refused{};
}

Value maximum(const Value& a, const Value& b) {
  auto number = as_number(b);
  if (auto other = as_number(a)) {
    return number ? constant(std::max(*other, *number)) : maximum(b, a);
  }
  if (!number || *number < 0.0f) {
    return Refused{};
  }
  if (auto* root = as<Root>(a)) {
    if (root->of.has_eps) {
      return Refused{};
    }
    Root bounded = *root;
    bounded.of.eps = *number / root->number;
    bounded.of.has_eps = bounded.of.eps_bounds = true;
    return bounded;
  }
  auto* moment = as<Moment>(a);
  if (!moment || !moment->squares || moment->has_eps) {
    return Refused{};
  }
  Moment bounded = *moment;
  if (*number > 0.0f) { // else nothing is: no moment is negative
    bounded.eps = std::sqrt(*number);
    bounded.has_eps = bounded.eps_bounds = true;
  }
  return bounded;
}

Value power(const Value& base, const Value& exponent) {
  auto number = as_number(exponent);
  if (!number) {
    return Refused{};
  }
  if (*number == 2.0f) {
    return square(base);
  }
  if (*number == 0.5f) {
    return square_root(base);
  }
  if (*number == -0.5f) {
    return one_over_root(base);
  }
  if (auto* root = as<Root>(base); root && *number == -1.0f) {
    return over_root({}, *root);
  }
  return Refused{};
}

Value square(const Value& a) {
  if (auto* x = as_multiple_of_x(a)) {
    return Squares{x->centered, x->number * x->number};
  }
  if (auto* magnitudes = as<Magnitudes>(a)) {
    return Squares{magnitudes->centered};
  }
  auto* moment = as<Moment>(a);
  return moment && !moment->squares && moment->mean
      ? Value(SquaredMean{moment->axis})
      : Refused{};
}

Value magnitude(const Value& a) {
  auto* x = as_x(a);
  return x ? Value(Magnitudes{x->centered}) : Refused{};
}

Value sum(const Value& a, int axis, int length, mx::Dtype dtype) {
  if (auto* x = as_x(a); x && !x->centered) {
    return Moment{.squares = false, .centered = {}, .axis = axis};
  }
  if (auto* squares = as<Squares>(a)) {
    Moment sum{.squares = true, .centered = squares->centered, .axis = axis};
    return squares->number == 1.0f
        ? Value(sum)
        : scaled(sum, is_one_over(length, squares->number, dtype));
  }
  return Refused{};
}

Value square_root(const Value& a) {
  auto* moment = as<Moment>(a);
  return moment && moment->squares ? Value(Root{*moment}) : Refused{};
}

Value one_over_root(const Value& a) {
  auto* moment = as<Moment>(a);
  return moment && moment->squares ? over_root({}, Root{*moment}) : Refused{};
}

Value cast(const Value& a, mx::Dtype from, mx::Dtype to, mx::Dtype of_x) {
  if (as<Refused>(a)) {
    return a;
  }
  bool narrows = to != mx::float32;
  if (!takes_dtype(to) || !takes_dtype(from) ||
      (narrows && from != mx::float32)) {
    return Refused{};
  }
  if (auto* x = as_multiple_of_x(a)) {
    return !narrows || (x->is_x() && to == of_x && !x->centered)
        ? a
        : Refused{}; // it is rounded to 16 bits
  }
  if (as<Magnitudes>(a)) {
    return narrows ? Refused{} : a;
  }
  if (auto* product = as<Product>(a)) {
    Product same = *product;
    same.widened = !narrows && same.is_normalized();
    if (same.is_number()) {
      same.number = rounded_to(same.number, to);
    }
    return same;
  }
  if (auto* shifted = as<Shifted>(a)) {
    Shifted same = *shifted;
    same.product.widened = !narrows;
    return same;
  }
  return a;
}

} // namespace mlx_norms
