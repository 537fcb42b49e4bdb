// Copyright © 2026 mlx_norms contributors
//
// What an array in the graph of a norm stands for, a product of powers:
//
//   number * x^a * statistic^b * (weight + offset) + bias
//
// and what operations make of it. Anything that is not exactly understood is
// unknown.

#pragma once

#include <optional>

#include "csrc/common/types.h"

namespace mlx_norms {

// Relative, of a length's root that Python computes and an array holds.
constexpr float kRootError = 1e-6f;

// Axes of the norm's x, a bit each.
using Axes = unsigned;

// The sum of x, or of its squares, over some axes, or the mean.
struct Statistic {
  bool squares = false;
  std::optional<Axes> centered; // of x less its mean over these
  Axes axes;
  bool mean = false;
  bool has_eps = false;
  bool eps_bounds = false; // of its root, instead of being added
  float eps = 0.0f;

  bool operator==(const Statistic&) const = default;
};

// A parameter, of one element for each of the axis.
struct Vector {
  int parameter;
  float offset = 0.0f;
  int axis_from_end = 0;
};

struct Monomial {
  bool known = true;
  float number = 1.0f;
  std::optional<mx::Dtype> number_in; // the widest in which it multiplies
  int x = 0;                          // its exponent
  std::optional<Axes> centered;       // x is less its mean over these
  bool magnitude = false;             // of x, of which squares are understood
  int halves = 0;                     // the exponent of the statistic, twice
  std::optional<Statistic> of;
  std::optional<Vector> weight, bias;
  bool rounded = false; // the normalized x has had 16 bits without a weight
  bool widened = false; // the latest operation is a cast to float32

  static Monomial unknown() {
    return {.known = false};
  }
  static Monomial constant(float number) {
    return {.number = number};
  }

  bool is_number() const {
    return known && !x && !halves && !weight;
  }
  bool is_multiple_of_x() const {
    return known && x == 1 && !magnitude && !halves && !weight && !bias;
  }
  bool is_x() const {
    return is_multiple_of_x() && number == 1.0f;
  }
  bool is_vector() const {
    return known && weight && !x && !halves && !bias;
  }
  bool is_weight() const {
    return is_vector() && number == 1.0f;
  }
  bool is_moment() const {
    return known && halves == 2 && !x && !weight;
  }
  bool is_root() const {
    return known && halves == 1 && !x && !weight;
  }
  // Whether it is x, over the root of a statistic or times a weight, as far as
  // there are.
  bool is_product() const {
    return known && x <= 1 && !magnitude && (halves == 0 || halves == -1) &&
        !bias;
  }
  bool is_normalized() const {
    return known && x == 1 && halves == -1;
  }
};

// `length` is that of the statistic's axes; a number has the dtype of the
// operation, `dtype`.
using M = const Monomial&;
Monomial multiply(M a, M b, int length, mx::Dtype dtype);
Monomial divide(M a, M b, int length, mx::Dtype dtype);
Monomial add(M a, M b);
Monomial subtract(M a, M b);
Monomial maximum(M a, M b);
Monomial power(M base, M exponent);
Monomial square(M a);
Monomial magnitude(M a);
Monomial sum(M a, Axes axes, int length, mx::Dtype dtype);
Monomial square_root(M a);
Monomial one_over_root(M a);
Monomial cast(M a, mx::Dtype from, mx::Dtype to, mx::Dtype of_x);

} // namespace mlx_norms
