// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/checks.h"

#include "csrc/common/checks.h"

namespace mlx_norms {

namespace {

void check_matrix(
    const char* op,
    const std::string& argument,
    const array& a,
    int length) {
  check_dtype(op, argument.c_str(), a.dtype());
  if (a.ndim() != 2 || a.shape(1) != length) {
    refuse(
        op,
        argument + " must have 2 axes [N, " + std::to_string(length) +
            "], the last axis of x at the end, but has shape " +
            text(a.shape()) + ".");
  }
}

// whole / part; 0 if that is not a whole number.
int times(int64_t whole, int64_t part) {
  return part > 0 && whole % part == 0 ? whole / part : 0;
}

Projection check_quantized(
    const char* op,
    const std::string& argument,
    std::span<const array> weight,
    int length) {
  const auto& [w, scales, biases] = std::tie(weight[0], weight[1], weight[2]);
  if (w.dtype() != mx::uint32) {
    refuse(
        op,
        argument +
            " must be an array or the three of mx.quantize, whose first is "
            "uint32, but that is " +
            text(w.dtype()) + ".");
  }
  for (auto [name, a] : {std::pair{"scales", &scales}, {"biases", &biases}}) {
    bool fits = w.ndim() == 2 && a->ndim() == 2 && a->shape(0) == w.shape(0) &&
        a->shape() == scales.shape();
    if (fits && takes_dtype(a->dtype())) {
      continue; // without a text: this is checked at each eval
    }
    auto part = std::string(name) + " of " + argument;
    check_dtype(op, part.c_str(), a->dtype());
    refuse(
        op,
        part +
            " must have a row for each of the weight's, as mx.quantize "
            "makes them, but has shape " +
            text(a->shape()) + " where that has " + text(w.shape()) + ".");
  }
  Projection p{
      .bits = times(int64_t(w.shape(1)) * 32, length),
      .group_size = times(length, scales.shape(1))};
  bool known = (p.bits == 4 || p.bits == 8) &&
      (p.group_size == 32 || p.group_size == 64 || p.group_size == 128);
  if (!known) {
    refuse(
        op,
        argument +
            " must be of 4 or 8 bits in groups of 32, 64 or 128, with rows of " +
            std::to_string(length) + ", the last axis of x, but has shape " +
            text(w.shape()) + " and scales of " + text(scales.shape()) + ".");
  }
  return p;
}

} // namespace

Projection check_weight(
    const char* op,
    const std::string& argument,
    std::span<const array> weight,
    int length) {
  if (weight.size() == 3) {
    return check_quantized(op, argument, weight, length);
  }
  if (weight.size() != 1) {
    refuse(
        op,
        argument + " must be an array or the three of mx.quantize but has " +
            std::to_string(weight.size()) + " arrays.");
  }
  check_matrix(op, argument, weight[0], length);
  return Projection{};
}

void check_projection_bias(
    const char* op,
    const std::string& argument,
    const array& bias,
    const array& weight) {
  check_dtype(op, argument.c_str(), bias.dtype());
  if (bias.ndim() != 1 || bias.shape(0) != weight.shape(0)) {
    refuse(
        op,
        argument + " must have shape " + text(mx::Shape{weight.shape(0)}) +
            ", a value for each row of its weight, but has " +
            text(bias.shape()) + ".");
  }
}

void check_added(
    const char* op,
    const array& residual,
    const mx::Shape& product) {
  if (residual.shape() != product) {
    refuse(
        op,
        "residual must have the product's shape " + text(product) +
            " but has " + text(residual.shape()) + ".");
  }
}

void check_gated(const char* op, const Arrays& weights) {
  if (weights.size() != 2) {
    refuse(
        op,
        "gated takes two weights, of the gate and of what it is multiplied "
        "with, but weights has " +
            std::to_string(weights.size()) + ".");
  }
  if (weights[0].shape(0) != weights[1].shape(0)) {
    refuse(
        op,
        "gated takes two weights with as many rows but weights[0] has " +
            std::to_string(weights[0].shape(0)) + " and weights[1] " +
            std::to_string(weights[1].shape(0)) + ".");
  }
}

std::string nth(const char* argument, size_t i, size_t n) {
  return n == 1 ? argument
                : std::string(argument) + "[" + std::to_string(i) + "]";
}

} // namespace mlx_norms
