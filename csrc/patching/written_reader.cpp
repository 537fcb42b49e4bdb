// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_reader.h"

#include <algorithm>
#include <array>

#include "csrc/common/checks.h"

namespace mlx_norms {

namespace {

constexpr int kMaxNodes = 64;
constexpr int kMaxDepth = 12; // from an operation of a norm to its operands

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

bool is_broadcast(std::string_view name) {
  return name == "Broadcast" || name == "BroadcastAxes";
}

Value as_constant(float number) {
  Product constant;
  constant.number = number;
  return constant;
}

// Whether a norm may have it: the operands of others are not looked at.
bool is_known(std::string_view name) {
  constexpr std::array kNames{
      "Multiply",
      "Add",
      "Broadcast",
      "Subtract",
      "Divide",
      "Square",
      "AsType",
      "Sum",
      "Rsqrt",
      "Sqrt",
      "Power",
      "Maximum",
      "Abs",
      "BroadcastAxes"};
  return std::ranges::any_of(
             kNames, [=](std::string_view known) { return known == name; }) ||
      is_reshape(name);
}

// In a shapeless trace.
Value number_of_elements(const array& a) {
  auto [axes, inverted, dtype] = state_of<mx::NumberOfElements>(a);
  float number = 1.0f;
  for (auto axis : axes) {
    number *= a.inputs()[0].shape(axis);
  }
  return as_constant(rounded_to(inverted ? 1.0 / number : number, dtype));
}

// The axis of a statistic of each row.
const int* axis_of(const Value& value) {
  if (auto* moment = std::get_if<Moment>(&value)) {
    return &moment->axis;
  }
  if (auto* root = std::get_if<Root>(&value)) {
    return &root->of.axis;
  }
  if (auto* squared = std::get_if<SquaredMean>(&value)) {
    return &squared->axis;
  }
  auto* product = std::get_if<Product>(&value);
  return product && product->over && !product->has_x && !product->weight
      ? &product->over->axis
      : nullptr;
}

// Whether a reshape adds axes before those of its input, as vmap does.
bool adds_leading_axes(const array& a) {
  if (!is_reshape(a.primitive().name())) {
    return false;
  }
  const auto& shape = a.inputs()[0].shape();
  auto rest = a.size() == a.inputs()[0].size() && a.ndim() >= shape.size()
      ? a.shape().end() - shape.size()
      : a.shape().begin();
  return std::equal(rest, a.shape().end(), shape.begin(), shape.end());
}

// What the value's array tells besides.
void note(const array& a, Value& value) {
  auto* product = std::get_if<Product>(&value);
  if (!product) {
    return;
  }
  product->rounded |=
      product->is_normalized() && !product->weight && a.dtype() != mx::float32;
  if (product->weight && !product->has_x && !product->over &&
      !is_pending(a, "Broadcast") && !is_pending(a, "BroadcastAxes")) {
    if (auto from_end = only_axis_from_end(a)) {
      product->weight->axis_from_end = *from_end;
    } else if (!adds_leading_axes(a)) {
      value = Refused{};
    }
  }
}

} // namespace

WrittenReader::WrittenReader(
    const array& x,
    mx::Stream stream,
    const PendingGraph& graph)
    : x_(x),
      stream_(stream),
      graph_(graph) {
  Product itself;
  itself.has_x = true;
  values_.emplace(x.id(), itself);
}

const Value* WrittenReader::find(const array& a) const {
  auto known = values_.find(a.id());
  return known == values_.end() ? nullptr : &known->second;
}

const Value& WrittenReader::value_of(const array& a) {
  if (auto* known = find(a)) {
    return *known;
  }
  Value value = Refused{};
  if (++nodes_ <= kMaxNodes && depth_ < kMaxDepth) {
    ++depth_;
    value = read(a);
    --depth_;
    note(a, value);
    if (may_be_parameter(a, value)) {
      value = as_parameter(a, parameters_.size());
      parameters_.push_back(a);
    }
  }
  return values_.emplace(a.id(), std::move(value)).first->second;
}

Value WrittenReader::as_parameter(const array& a, int i) const {
  Product parameter;
  parameter.weight = Weight{i, 0.0f, *only_axis_from_end(a)};
  return parameter;
}

// A product of a vector is one, too, and a vector that is rounded: only
// `number + vector` is an option.
bool WrittenReader::may_be_parameter(const array& a, const Value& value) const {
  auto* product = std::get_if<Product>(&value);
  bool is_multiple = product && product->weight && !product->has_x &&
      !product->over && product->number != 1.0f;
  bool rounds = product && product->is_weight() && is_pending(a, "AsType") &&
      a.dtype() != mx::float32;
  return (is_multiple || rounds || std::holds_alternative<Refused>(value)) &&
      takes_dtype(a.dtype()) && only_axis_from_end(a);
}

Value WrittenReader::read(const array& a) {
  if (!graph_.is_inner(a)) {
    auto number = as_number(a);
    bool is_given = a.ndim() > 0 || graph_.is_boundary(a);
    return number && !is_given ? as_constant(*number) : Refused{};
  }
  if (!a.siblings().empty() || a.primitive().stream() != stream_) {
    return Refused{};
  }
  std::string_view name = a.primitive().name();
  if (name == "NumberOfElements") {
    return number_of_elements(a);
  }
  // A broadcast within a shapeless trace has inputs that give it a shape.
  const auto& in = a.inputs();
  size_t operands = is_broadcast(name) ? 1 : in.size();
  if (!is_known(name) || operands == 0 || operands > 2) {
    return Refused{};
  }
  std::array<const Value*, 2> values{};
  for (size_t i = 0; i < operands; ++i) {
    values[i] = &value_of(in[i]);
    if (std::holds_alternative<Refused>(*values[i])) {
      return Refused{};
    }
  }
  return operands == 1 ? unary(name, a, *values[0])
                       : binary(name, a, *values[0], *values[1]);
}

Value WrittenReader::unary(
    std::string_view name,
    const array& a,
    const Value& value) {
  const auto& input = a.inputs()[0];
  if (name == "AsType") {
    return cast(value, input.dtype(), a.dtype(), x_.dtype());
  }
  if (is_broadcast(name)) {
    return broadcast(a, value);
  }
  if (name == "Square") {
    return square(value);
  }
  if (name == "Abs") {
    return magnitude(value);
  }
  if (name == "Sum") {
    auto axes = state_of<mx::Reduce>(a).second;
    return axes.size() == 1
        ? sum(value, axes[0], input.shape(axes[0]), a.dtype())
        : Refused{};
  }
  if (name == "Sqrt") {
    return square_root(value);
  }
  if (name == "Rsqrt") {
    return one_over_root(value);
  }
  auto* product = std::get_if<Product>(&value);
  bool has_no_rows = product && (product->is_weight() || product->is_number());
  if (has_no_rows && is_reshape(name)) {
    return value; // note() says where its axis is now
  }
  if (auto* axis = axis_of(value)) {
    if (name == "Squeeze" &&
        state_of<mx::Squeeze>(a) == std::vector<int>{*axis}) {
      return value;
    }
    if (name == "ExpandDims" &&
        state_of<mx::ExpandDims>(a) == std::vector<int>{*axis}) {
      return value;
    }
  }
  return Refused{};
}

Value WrittenReader::binary(
    std::string_view name,
    const array& a,
    const Value& left,
    const Value& right) const {
  auto* moment = std::get_if<Moment>(&left);
  moment = moment ? moment : std::get_if<Moment>(&right);
  int length = moment ? x_.shape(moment->axis) : 0;
  return name == "Multiply" ? multiply(left, right, length, a.dtype())
      : name == "Divide"    ? divide(left, right, length, a.dtype())
      : name == "Add"       ? add(left, right)
      : name == "Subtract"  ? subtract(left, right)
      : name == "Maximum"   ? maximum(left, right)
      : name == "Power"     ? power(left, right)
                            : Refused{};
}

// A statistic keeps its axis, as one element; else another axis would be
// taken for it.
Value WrittenReader::broadcast(const array& a, const Value& value) const {
  const auto& whole = a.inputs()[0];
  if (auto* axis = axis_of(value)) {
    auto shape = x_.shape();
    shape[*axis] = 1;
    bool fits = whole.shape() == shape || whole.ndim() == 0;
    return fits ? value : Refused{};
  }
  auto* product = std::get_if<Product>(&value);
  bool is_small = product && !product->has_x && !product->over;
  // To its own shape, as by mx.broadcast_arrays.
  bool stays = whole.shape() == x_.shape() && a.shape() == x_.shape();
  return is_small || stays ? value : Refused{};
}

} // namespace mlx_norms
