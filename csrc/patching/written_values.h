// Copyright © 2026 mlx_norms contributors
//
// What an array in the graph of a norm stands for, and what operations make of
// it. Anything that is not exactly understood is Refused.

#pragma once

#include <variant>

#include "csrc/patching/pending.h"

namespace mlx_norms {

// Relative, of a length's root that Python computes and an array holds.
constexpr float kRootError = 1e-6f;

struct Refused {};

// A statistic of each row: the sum of its elements or of their squares, or the
// mean.
struct Moment {
  bool squares;
  std::optional<int> centered; // of x less its mean over this axis
  int axis;
  bool mean = false;
  float eps = 0.0f; // added to it
  bool has_eps = false;
  bool eps_bounds = false; // of its root, instead of being added
};

// The square root of a moment, times a positive number.
struct Root {
  Moment of;
  float number = 1.0f;
  std::optional<mx::Dtype> number_in; // the widest in which it multiplies
};

struct Squares { // of x
  std::optional<int> centered;
  float number = 1.0f; // by which they are multiplied
};

struct Magnitudes { // of x, of which only squares are understood
  std::optional<int> centered;
};

struct SquaredMean { // of x
  int axis;
};

// (parameter + offset), of one element for each of the axis.
struct Weight {
  int parameter;
  float offset = 0.0f;
  int axis_from_end = 0;
};

// A product of these factors, each of which may be absent: a number, x or x
// less its mean, one over the root of a moment, or a weight.
struct Product {
  float number = 1.0f;
  bool has_x = false;
  std::optional<int> centered;
  std::optional<Moment> over;
  std::optional<Weight> weight;
  bool rounded = false; // the normalized x has had 16 bits without a weight
  bool widened = false; // the latest operation is a cast to float32
  std::optional<mx::Dtype> number_in; // the widest in which it multiplies

  bool is_number() const {
    return !has_x && !over && !weight;
  }
  bool is_multiple_of_x() const {
    return has_x && !over && !weight;
  }
  bool is_x() const {
    return is_multiple_of_x() && number == 1.0f;
  }
  bool is_weight() const {
    return weight && !has_x && !over && number == 1.0f;
  }
  bool is_normalized() const {
    return has_x && over;
  }
};

// A normalized product and a bias.
struct Shifted {
  Product product;
  Weight bias;
};

using Value = std::variant<
    Refused,
    Product,
    Moment,
    Root,
    Squares,
    Magnitudes,
    SquaredMean,
    Shifted>;

// The rules that depend on values alone. A number has the dtype of the
// operation, `dtype`.
Value multiply(const Value& a, const Value& b, int length, mx::Dtype dtype);
Value divide(const Value& a, const Value& b, int length, mx::Dtype dtype);
Value add(const Value& a, const Value& b);
Value subtract(const Value& a, const Value& b);
Value maximum(const Value& a, const Value& b);
Value power(const Value& base, const Value& exponent);
Value square(const Value& a);
Value magnitude(const Value& a);
Value sum(const Value& a, int axis, int length, mx::Dtype dtype);
Value square_root(const Value& a);
Value one_over_root(const Value& a);
Value cast(const Value& a, mx::Dtype from, mx::Dtype to, mx::Dtype of_x);

} // namespace mlx_norms
