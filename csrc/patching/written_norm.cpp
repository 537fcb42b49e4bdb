// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "csrc/common/checks.h"
#include "csrc/patching/written_reader.h"

namespace mlx_norms {

namespace {

using Result = std::variant<WrittenNorm, const char*>;

// Whether the number is sqrt(length), as the dtype in which it multiplies has
// it or its reciprocal, which makes the mean of a sum of squares.
bool is_root_of(int length, const Product& product) {
  auto root = std::sqrt(static_cast<float>(length));
  auto is_near = [&](float exact) {
    return std::abs(product.number - exact) <= kRootError * root;
  };
  return std::ranges::any_of(
      std::array{mx::float32, product.number_in.value_or(mx::float32)},
      [&](auto dtype) {
        return is_near(rounded_to(root, dtype)) ||
            is_near(1.0f / rounded_to(1.0f / root, dtype));
      });
}

using Reason = std::optional<const char*>;

constexpr const char* kL2OfAxis =
    "it is an l2 norm over another axis than the last one";

// Takes the sum or mean of squares, or says why no kernel of ours has it.
Reason take_moment(WrittenNorm& norm, const Product& product, const array& x) {
  const Reason multiplied = product.number == 1.0f
      ? std::nullopt
      : Reason("it multiplies by a number besides");
  const auto& over = *product.over;
  if (product.centered != over.centered ||
      (over.centered && *over.centered != over.axis)) {
    return product.centered ? "its mean and variance are not of the same rows"
                            : "it divides by a deviation of x, not of its mean";
  }
  norm.eps_bounds = over.eps_bounds;
  if (over.mean) {
    return over.centered && over.eps_bounds
        ? Reason("its eps bounds the variance instead of being added to it")
        : multiplied;
  }
  if (over.centered) {
    return "it divides by a sum of squares, not by their mean";
  }
  int length = x.shape(over.axis);
  if (is_root_of(length, product)) {
    norm.eps = over.eps_bounds
        ? over.eps / std::sqrt(static_cast<float>(length))
        : over.eps / length;
    return std::nullopt;
  }
  norm.kind = WrittenNorm::Kind::L2;
  return over.axis != static_cast<int>(x.ndim()) - 1 ? Reason(kL2OfAxis)
                                                     : multiplied;
}

Reason why_not_parameter(
    const Weight& weight,
    const Product& product,
    const array& x,
    const Arrays& parameters) {
  const auto& parameter = parameters[weight.parameter];
  int axis = product.over->axis;
  if (weight.axis_from_end != static_cast<int>(x.ndim()) - axis ||
      static_cast<int>(parameter.size()) != x.shape(axis)) {
    return "its weight or bias is along another axis";
  }
  return takes_dtype(parameter.dtype())
      ? std::nullopt
      : Reason("its weight or bias is not float32, float16 or bfloat16");
}

// The norm that a value is, or why it is none of ours.
Result as_norm(
    const Product& product,
    const std::optional<Weight>& bias,
    const array& output,
    const array& x,
    const Arrays& parameters) {
  const auto& over = *product.over;
  WrittenNorm norm{
      .kind = over.centered ? WrittenNorm::Kind::Layer : WrittenNorm::Kind::Rms,
      .axis = over.axis,
      .eps = over.eps,
      .weight = {},
      .bias = {},
      .dtype = output.dtype()};
  if (auto why = take_moment(norm, product, x)) {
    return *why;
  }
  if (!(norm.eps >= 0.0f) || !std::isfinite(norm.eps)) {
    return "its eps is no number that our kernels take";
  }
  if (bias && norm.kind != WrittenNorm::Kind::Layer) {
    return "it adds a bias to an RMS norm";
  }
  for (auto* each : {&product.weight, &bias}) {
    if (!*each) {
      continue;
    }
    if (auto why = why_not_parameter(**each, product, x, parameters)) {
      return *why;
    }
  }
  if (const auto& weight = product.weight) {
    if (norm.kind == WrittenNorm::Kind::L2) {
      return "it is an l2 norm with a weight";
    }
    norm.weight = weight->parameter;
    norm.weight_offset = weight->offset;
    norm.rounding = product.rounded || norm.dtype == mx::float32
        ? Rounding::Early
        : Rounding::Late;
  }
  if (bias) {
    norm.bias = bias->parameter;
  }
  return norm;
}

} // namespace

std::variant<WrittenNorm, const char*> norm_of(
    const Value& value,
    const array& output,
    const array& x,
    const Arrays& parameters) {
  if (auto* refused = std::get_if<Refused>(&value)) {
    return refused->why;
  }
  auto* shifted = std::get_if<Shifted>(&value);
  auto* product = shifted ? &shifted->product : std::get_if<Product>(&value);
  if (!product || !product->is_normalized()) {
    return "it does not divide x by a statistic of its rows";
  }
  if (x.shape(product->over->axis) == 1) {
    return "its rows have one element";
  }
  if (product->widened) {
    return "it rounds the result to 16 bits and casts it back to float32";
  }
  auto bias = shifted ? std::optional(shifted->bias) : std::nullopt;
  return as_norm(*product, bias, output, x, parameters);
}

} // namespace mlx_norms
