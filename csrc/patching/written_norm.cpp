// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "csrc/common/checks.h"
#include "csrc/patching/written_reader.h"

namespace mlx_norms {

namespace {

using Result = std::variant<WrittenNorm, std::string>;

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

using Reason = std::optional<std::string>;

const std::string kL2OfAxis =
    "it is an l2 norm over another axis than the last one";

// Takes the sum or mean of squares, or says why no kernel of ours has it.
Reason take_moment(WrittenNorm& norm, const Product& product, const array& x) {
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
        : std::nullopt;
  }
  if (over.centered) {
    return "it divides by a sum of squares, not by their mean";
  }
  int length = x.shape(over.axis);
  if (is_root_of(length, product)) {
    norm.eps = over.eps_bounds
        ? over.eps / std::sqrt(static_cast<float>(length))
        : over.eps / length;
    norm.number = 1.0f;
    return std::nullopt;
  }
  norm.kind = WrittenNorm::Kind::L2;
  return over.axis != static_cast<int>(x.ndim()) - 1 ? Reason(kL2OfAxis)
                                                     : std::nullopt;
}

// Which parameter the norm's result is multiplied by; no l2 norm of ours has a
// weight.
std::optional<int> factor_of(
    const WrittenNorm& norm,
    const Product& product,
    const Arrays& parameters) {
  const auto& weight = product.weight;
  if (norm.kind != WrittenNorm::Kind::L2 || !weight || weight->offset != 0.0f) {
    return product.factor;
  }
  const auto& parameter = parameters[weight->parameter];
  bool is_row = parameter.shape(-1) == static_cast<int>(parameter.size());
  return is_row ? std::optional(weight->parameter) : std::nullopt;
}

// Why the number cannot be applied to our result, which has been rounded.
Reason
why_not_number(const WrittenNorm& norm, const Product& product, bool has_bias) {
  if (norm.number == 1.0f) {
    return std::nullopt;
  }
  if (has_bias) {
    return "it multiplies by a number besides its bias";
  }
  if (norm.dtype == mx::float32) {
    return std::nullopt;
  }
  if (product.has_parameter()) {
    return "it multiplies by a number besides its weight";
  }
  return product.rounded == 1.0f
      ? std::nullopt
      : Reason("it multiplies by a number before it rounds to 16 bits");
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
      .dtype = output.dtype(),
      .number = product.number,
      .factor = {},
      .output = output.dtype()};
  if (auto why = take_moment(norm, product, x)) {
    return *why;
  }
  norm.factor = factor_of(norm, product, parameters);
  if (norm.factor && !product.rounded) {
    norm.dtype = mx::float32;
  }
  if (auto why = why_not_number(norm, product, bias.has_value())) {
    return *why;
  }
  if (!(norm.eps >= 0.0f) || !std::isfinite(norm.eps)) {
    return "its eps is no number that our kernels take";
  }
  if (bias && norm.factor) {
    return "its weight is no vector, besides its bias";
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
  if (const auto& weight = product.weight; weight && !norm.factor) {
    if (norm.kind == WrittenNorm::Kind::L2) {
      return "it is an l2 norm with a weight that is more than a vector";
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

// A stand-in whose axes code moves before it normalizes it, and moves back.
struct Moved {
  array x;
  std::vector<int> axes; // where each of its axes is in the stand-in
};

// That of `x` of which `output`, with its axes moved back, may be the norm.
std::optional<Moved> moved_before(const array& output, const array& x) {
  constexpr size_t kMaxNodes = 64;
  if (!is_pending(output, "Transpose")) {
    return std::nullopt;
  }
  auto back = state_of<mx::Transpose>(output);
  std::vector<const array*> nodes{&output.inputs()[0]};
  for (size_t i = 0; i < std::min(nodes.size(), kMaxNodes); ++i) {
    const auto& node = *nodes[i];
    if (is_pending(node, "Transpose") && node.inputs()[0].id() == x.id()) {
      auto axes = state_of<mx::Transpose>(node);
      for (size_t k = 0; k < axes.size(); ++k) {
        if (axes[back[k]] != static_cast<int>(k)) {
          return std::nullopt;
        }
      }
      return Moved{node, std::move(axes)};
    }
    if (is_pending(node)) {
      for (const auto& in : node.inputs()) {
        nodes.push_back(&in);
      }
    }
  }
  return std::nullopt;
}

// What it is as a norm of the stand-in.
Result moved_back(Result found, const Moved& moved) {
  auto* norm = std::get_if<WrittenNorm>(&found);
  if (!norm) {
    return found;
  }
  if (norm->factor) {
    return "its weight is no vector, of axes that it moves";
  }
  norm->axis = moved.axes[norm->axis];
  return norm->kind == WrittenNorm::Kind::L2 &&
          norm->axis != static_cast<int>(moved.axes.size()) - 1
      ? kL2OfAxis
      : found;
}

} // namespace

const char* WrittenNorm::op() const {
  return kind == Kind::Rms  ? "rms_norm"
      : kind == Kind::Layer ? "layer_norm"
                            : "l2_norm";
}

array stand_in(const array& x) {
  array like(x.shape(), x.dtype(), nullptr, {});
  like.set_tracer(true);
  return like;
}

Result
written_norm(const array& output, const array& x, const Arrays& parameters) {
  auto is_stand_in = [](const array& a) {
    return !a.has_primitive() && a.status() == array::Status::unscheduled;
  };
  if (!is_stand_in(x) || !std::ranges::all_of(parameters, is_stand_in)) {
    return "it changes its argument or a parameter in place";
  }
  if (output.shape() != x.shape() || !takes_dtype(output.dtype())) {
    return "it returns an array of another shape or dtype than a norm's";
  }
  for (auto length : x.shape()) {
    if (length == 0) {
      return "it was called with an empty array";
    }
  }
  if (auto moved = moved_before(output, x)) {
    const auto& normalized = output.inputs()[0];
    WrittenReader reader(moved->x, parameters);
    return moved_back(
        norm_of(reader.value_of(normalized), normalized, moved->x, parameters),
        *moved);
  }
  WrittenReader reader(x, parameters);
  return norm_of(reader.value_of(output), output, x, parameters);
}

std::variant<WrittenNorm, std::string> norm_of(
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
