// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "csrc/common/checks.h"

namespace mlx_norms {

namespace {

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

// Takes the sum or mean of squares, if a kernel of ours has it.
bool take_moment(WrittenNorm& norm, const Product& product, const array& x) {
  const bool is_bare = product.number == 1.0f;
  const auto& over = *product.over;
  if (product.centered != over.centered ||
      (over.centered && *over.centered != over.axis)) {
    return false; // a mean and a variance of other rows
  }
  norm.eps_bounds = over.eps_bounds;
  if (over.mean) {
    return is_bare && !(over.centered && over.eps_bounds);
  }
  if (over.centered) {
    return false;
  }
  int length = x.shape(over.axis);
  if (is_root_of(length, product)) {
    norm.eps = over.eps_bounds
        ? over.eps / std::sqrt(static_cast<float>(length))
        : over.eps / length;
    return true;
  }
  norm.kind = WrittenNorm::Kind::L2;
  return is_bare && over.axis == static_cast<int>(x.ndim()) - 1;
}

// Whether it is along the norm's axis, of a dtype of ours.
bool fits(

    const Weight& weight,
    const Product& product,
    const array& x,
    const Arrays& parameters) {
  const auto& parameter = parameters[weight.parameter];
  int axis = product.over->axis;
  return weight.axis_from_end == static_cast<int>(x.ndim()) - axis &&
      static_cast<int>(parameter.size()) == x.shape(axis) &&
      takes_dtype(parameter.dtype());
}

std::optional<WrittenNorm> as_norm(
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
  if (!take_moment(norm, product, x) || !(norm.eps >= 0.0f) ||
      !std::isfinite(norm.eps)) {
    return std::nullopt;
  }
  bool takes_weight = norm.kind != WrittenNorm::Kind::L2;
  bool takes_bias = norm.kind == WrittenNorm::Kind::Layer;
  auto may_be = [&](const std::optional<Weight>& each, bool takes) {
    return !each || (takes && fits(*each, product, x, parameters));
  };
  if (!may_be(product.weight, takes_weight) || !may_be(bias, takes_bias)) {
    return std::nullopt;
  }
  if (const auto& weight = product.weight) {
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

std::optional<WrittenNorm> norm_of(
    const Value& value,
    const array& output,
    const array& x,
    const Arrays& parameters) {
  auto* shifted = std::get_if<Shifted>(&value);
  auto* product = shifted ? &shifted->product : std::get_if<Product>(&value);
  // A result that is rounded to 16 bits and cast back has no op.
  if (!product || !product->is_normalized() ||
      x.shape(product->over->axis) == 1 || product->widened) {
    return std::nullopt;
  }
  auto bias = shifted ? std::optional(shifted->bias) : std::nullopt;
  return as_norm(*product, bias, output, x, parameters);
}

} // namespace mlx_norms
