// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/reader.h"

#include <algorithm>
#include <array>
#include <optional>

#include "csrc/common/checks.h"
#include "csrc/patching/pending.h"

namespace mlx_norms {

namespace {

constexpr int kMaxRead = 64;  // arrays
constexpr int kMaxDepth = 12; // from an operation of a norm to its operands

bool is_broadcast(std::string_view name) {
  return name == "Broadcast" || name == "BroadcastAxes";
}

Axes as_axes(const std::vector<int>& axes) {
  Axes bits = 0;
  for (int axis : axes) {
    bits |= axis < kMaxAxes ? 1u << axis : 0;
  }
  return bits;
}

// Where the axis is, if it is the only one that is longer than one.
std::optional<int> only_axis_from_end(const array& a) {
  std::optional<int> found;
  for (int i = 0; i < static_cast<int>(a.ndim()); ++i) {
    if (a.shape(i) > 1) {
      if (found) {
        return std::nullopt;
      }
      found = a.ndim() - i;
    }
  }
  return found;
}

// Whether a reshape adds axes before those of its input, as vmap does.
bool adds_leading_axes(const array& a) {
  if (!is_reshape(name_of(a))) {
    return false;
  }
  const auto& shape = a.inputs()[0].shape();
  auto rest = a.size() == a.inputs()[0].size() && a.ndim() >= shape.size()
      ? a.shape().end() - shape.size()
      : a.shape().begin();
  return std::equal(rest, a.shape().end(), shape.begin(), shape.end());
}

// A product of a vector is one, too, and a vector that is rounded: only
// `number + vector` is an option.
bool may_be_parameter(const array& a, const Monomial& value) {
  bool rounds =
      value.is_weight() && is_pending(a, "AsType") && a.dtype() != mx::float32;
  bool is_multiple = value.is_vector() && value.number != 1.0f;
  return (!value.known || is_multiple || rounds) && takes_dtype(a.dtype()) &&
      only_axis_from_end(a);
}

// With what the array tells besides.
Monomial noted(const array& a, Monomial value) {
  value.rounded |= value.is_normalized() && !value.bias && !value.weight &&
      a.dtype() != mx::float32;
  if (!value.is_vector() || is_broadcast(name_of(a))) {
    return value;
  }
  if (auto from_end = only_axis_from_end(a)) {
    value.weight->axis_from_end = *from_end;
  } else if (!adds_leading_axes(a)) {
    return Monomial::unknown();
  }
  return value;
}

// The operands of other operations are not looked at.
bool may_be_of_norm(std::string_view name) {
  constexpr std::array kNames{
      "Multiply",
      "Add",
      "Subtract",
      "Divide",
      "Square",
      "AsType",
      "Sum",
      "Rsqrt",
      "Sqrt",
      "Power",
      "Abs",
      "Maximum"};
  return is_broadcast(name) || is_reshape(name) ||
      std::ranges::any_of(
             kNames, [=](std::string_view known) { return known == name; });
}

// A shapeless trace has it as an operation.
Monomial number_of_elements(const array& a) {
  auto [axes, inverted, dtype] = state_of<mx::NumberOfElements>(a);
  float number = 1.0f;
  for (auto axis : axes) {
    number *= a.inputs()[0].shape(axis);
  }
  number = inverted ? 1.0f / number : number;
  return Monomial::constant(rounded_to(number, dtype));
}

// The axes that a statistic is over; or null.
const Axes* axes_of(const Monomial& value) {
  bool is_statistic = value.of && !value.x && !value.weight;
  return is_statistic ? &value.of->axes : nullptr;
}

Monomial reshape(std::string_view name, const array& a, const Monomial& value) {
  if (value.is_weight() || value.is_number()) {
    return value; // noted() says where its axis is now
  }
  auto* axes = axes_of(value);
  bool stays = axes &&
      ((name == "Squeeze" && *axes == as_axes(state_of<mx::Squeeze>(a))) ||
       (name == "ExpandDims" && *axes == as_axes(state_of<mx::ExpandDims>(a))));
  return stays ? value : Monomial::unknown();
}

} // namespace

int length_over(const array& x, Axes axes) {
  int length = 1;
  for (int i = 0; i < static_cast<int>(x.ndim()); ++i) {
    length *= axes >> i & 1 ? x.shape(i) : 1;
  }
  return length;
}

Reader::Reader(const array& x, mx::Stream stream, const Graph& graph)
    : x_(x),
      stream_(stream),
      graph_(graph) {
  values_.reserve(kMaxRead); // they stay where they are
  values_.emplace_back(x.id(), Monomial{.x = 1});
}

const Monomial* Reader::find(const array& a) const {
  for (const auto& [id, value] : values_) {
    if (id == a.id()) {
      return &value;
    }
  }
  return nullptr;
}

const Monomial& Reader::value_of(const array& a) {
  if (auto* known = find(a)) {
    return *known;
  }
  static const auto unknown = Monomial::unknown();
  if (depth_ == kMaxDepth || values_.size() == kMaxRead) {
    return unknown;
  }
  ++depth_;
  auto value = noted(a, read(a));
  --depth_;
  if (may_be_parameter(a, value)) {
    Vector parameter{
        static_cast<int>(parameters_.size()), 0.0f, *only_axis_from_end(a)};
    value = {.weight = parameter};
    parameters_.push_back(a);
  }
  if (values_.size() == kMaxRead) {
    return unknown;
  }
  return values_.emplace_back(a.id(), std::move(value)).second;
}

Monomial Reader::read(const array& a) {
  if (!graph_.is_inner(a)) {
    auto number = as_number(a);
    bool is_given = a.ndim() > 0 || graph_.is_boundary(a);
    return number && !is_given ? Monomial::constant(*number)
                               : Monomial::unknown();
  }
  if (!a.siblings().empty() || a.primitive().stream() != stream_) {
    return Monomial::unknown();
  }
  auto name = name_of(a);
  if (name == "NumberOfElements") {
    return number_of_elements(a);
  }
  // A broadcast within a shapeless trace has inputs that give it a shape.
  const auto& in = a.inputs();
  size_t operands = is_broadcast(name) ? 1 : in.size();
  if (!may_be_of_norm(name) || operands == 0 || operands > 2) {
    return Monomial::unknown();
  }
  std::array<const Monomial*, 2> values{};
  for (size_t i = 0; i < operands; ++i) {
    values[i] = &value_of(in[i]);
    if (!values[i]->known) {
      return *values[i];
    }
  }
  return operands == 1 ? unary(name, a, *values[0])
                       : binary(name, a, *values[0], *values[1]);
}

Monomial Reader::unary(
    std::string_view name,
    const array& a,
    const Monomial& value) const {
  const auto& input = a.inputs()[0];
  if (name == "AsType") {
    return cast(value, input.dtype(), a.dtype(), x_.dtype());
  }
  if (name == "Sum") {
    auto axes = as_axes(state_of<mx::Reduce>(a).second);
    bool is_of_x = input.shape() == x_.shape();
    return is_of_x ? sum(value, axes, length_of(axes), a.dtype())
                   : Monomial::unknown();
  }
  return is_broadcast(name) ? broadcast(a, value)
      : is_reshape(name)    ? reshape(name, a, value)
      : name == "Square"    ? square(value)
      : name == "Abs"       ? magnitude(value)
      : name == "Sqrt"      ? square_root(value)
      : name == "Rsqrt"     ? one_over_root(value)
                            : Monomial::unknown();
}

Monomial Reader::binary(
    std::string_view name,
    const array& a,
    const Monomial& left,
    const Monomial& right) const {
  const auto& of = left.is_moment() ? left.of : right.of;
  bool has_moment = left.is_moment() || right.is_moment();
  int length = has_moment ? length_of(of->axes) : 0;
  return name == "Multiply" ? multiply(left, right, length, a.dtype())
      : name == "Divide"    ? divide(left, right, length, a.dtype())
      : name == "Add"       ? add(left, right)
      : name == "Subtract"  ? subtract(left, right)
      : name == "Maximum"   ? maximum(left, right)
      : name == "Power"     ? power(left, right)
                            : Monomial::unknown();
}

// A statistic keeps its axes, as one element; else another axis would be
// taken for one.
Monomial Reader::broadcast(const array& a, const Monomial& value) const {
  const auto& whole = a.inputs()[0];
  if (auto* axes = axes_of(value)) {
    auto shape = x_.shape();
    for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
      shape[i] = *axes >> i & 1 ? 1 : shape[i];
    }
    bool fits = whole.shape() == shape || whole.ndim() == 0;
    return fits ? value : Monomial::unknown();
  }
  bool is_small = value.is_product() && !value.x && !value.halves;
  // A broadcast to its own shape is one of mx.broadcast_arrays.
  bool stays = whole.shape() == x_.shape() && a.shape() == x_.shape();
  return is_small || stays ? value : Monomial::unknown();
}

} // namespace mlx_norms
