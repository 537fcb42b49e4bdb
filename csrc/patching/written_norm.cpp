// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_norm.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "csrc/common/checks.h"
#include "csrc/patching/written_values.h"

namespace mlx_norms {

namespace {

constexpr int kMaxNodes = 64;

// Where the axis is, if it is the only one that is longer than one.
std::optional<int> only_axis_from_end(const array& a) {
  std::optional<int> found;
  for (int i = 0; i < a.ndim(); ++i) {
    if (a.shape(i) > 1) {
      if (found) {
        return std::nullopt;
      }
      found = a.ndim() - i;
    }
  }
  return found;
}

// Reads the graph between the stand-ins and an array.
class Reader {
 public:
  Reader(const array& x, const Arrays& parameters) : x_(x) {
    Product itself;
    itself.has_x = true;
    values_.emplace(x.id(), itself);
    for (size_t i = 0; i < parameters.size(); ++i) {
      values_.emplace(parameters[i].id(), parameter(parameters[i], i));
    }
  }

  const Value& value_of(const array& a) {
    auto known = values_.find(a.id());
    if (known != values_.end()) {
      return known->second;
    }
    Value value = Refused{"its graph is long"};
    if (++nodes_ <= kMaxNodes) {
      value = read(a);
      note(a, value);
    }
    return values_.emplace(a.id(), std::move(value)).first->second;
  }

 private:
  Value parameter(const array& a, int i) {
    auto from_end = only_axis_from_end(a);
    if (!from_end) {
      return Refused{
          a.size() == 1 ? "it uses an array of one element as a number"
                        : "its parameter is no vector"};
    }
    Product weight;
    weight.weight = Weight{i, 0.0f, *from_end};
    return weight;
  }

  Value read(const array& a) {
    if (!is_pending(a)) {
      if (auto number = as_number(a)) {
        Product constant;
        constant.number = *number;
        return constant;
      }
      return Refused{"it uses an array that is neither x nor its own"};
    }
    if (!a.siblings().empty()) {
      return Refused{"it takes an operation with several results"};
    }
    const std::string name = a.primitive().name();
    if (name == "NumberOfElements") {
      return number_of_elements(a);
    }
    std::vector<Value> in;
    for (const auto& input : a.inputs()) {
      in.push_back(value_of(input));
      // A broadcast within a shapeless trace has inputs that give it a shape.
      if (name == "Broadcast" || name == "BroadcastAxes") {
        break;
      }
    }
    for (const auto& value : in) {
      if (std::holds_alternative<Refused>(value)) {
        return value;
      }
    }
    return in.size() == 1 ? unary(name, a, in[0])
        : in.size() == 2  ? binary(name, a, in[0], in[1])
                          : unknown(name);
  }

  Value unary(const std::string& name, const array& a, const Value& value) {
    const auto& input = a.inputs()[0];
    if (name == "AsType") {
      return cast(value, input.dtype(), a.dtype(), x_.dtype());
    }
    if (name == "Broadcast" || name == "BroadcastAxes") {
      return broadcast(input, value);
    }
    if (name == "Square") {
      return square(value);
    }
    if (name == "Sum") {
      auto axes = state_of<mx::Reduce>(a).second;
      return axes.size() == 1 ? sum(value, axes[0])
                              : Refused{"its statistics are over several axes"};
    }
    if (name == "Sqrt") {
      return square_root(value);
    }
    if (name == "Rsqrt") {
      return one_over_root(value);
    }
    auto* product = std::get_if<Product>(&value);
    if (product && product->is_weight() &&
        (name == "Reshape" || name == "Flatten" || name == "Unflatten" ||
         name == "Squeeze" || name == "ExpandDims")) {
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
    return unknown(name);
  }

  Value binary(
      const std::string& name,
      const array& a,
      const Value& left,
      const Value& right) {
    auto* moment = std::get_if<Moment>(&left);
    moment = moment ? moment : std::get_if<Moment>(&right);
    int length = moment ? x_.shape(moment->axis) : 0;
    return name == "Multiply" ? multiply(left, right, length, a.dtype())
        : name == "Divide"    ? divide(left, right, length, a.dtype())
        : name == "Add"       ? add(left, right)
        : name == "Subtract"  ? subtract(left, right)
        : name == "Maximum"   ? maximum(left, right)
        : name == "Power"     ? power(left, right)
                              : unknown(name);
  }

  Value unknown(const std::string& name) {
    return Refused{
        name.starts_with("Compiled")
            ? "it calls a compiled function"
            : "it takes " + name + ", which is no part of a norm"};
  }

  // In a shapeless trace.
  Value number_of_elements(const array& a) {
    auto [axes, inverted, dtype] = state_of<mx::NumberOfElements>(a);
    float number = 1.0f;
    for (auto axis : axes) {
      number *= a.inputs()[0].shape(axis);
    }
    Product constant;
    constant.number = rounded_to(inverted ? 1.0 / number : number, dtype);
    return constant;
  }

  // The axis of a statistic of each row.
  static const int* axis_of(const Value& value) {
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

  // A statistic keeps its axis, as one element; else another axis would be
  // taken for it.
  Value broadcast(const array& whole, const Value& value) {
    if (auto* axis = axis_of(value)) {
      auto shape = x_.shape();
      shape[*axis] = 1;
      bool fits = whole.shape() == shape || whole.ndim() == 0;
      return fits ? value
                  : Refused{"its statistics broadcast along another axis"};
    }
    auto* product = std::get_if<Product>(&value);
    bool is_small = product && !product->has_x && !product->over;
    return is_small || whole.shape() == x_.shape() ? value
                                                   : Refused{"it broadcasts x"};
  }

  // What the value's array tells besides.
  void note(const array& a, Value& value) {
    auto* product = std::get_if<Product>(&value);
    if (!product) {
      return;
    }
    if (product->is_normalized() && !product->weight && !product->rounded &&
        a.dtype() != mx::float32) {
      product->rounded = product->number;
    }
    if (product->weight && !product->has_x && !product->over &&
        !is_pending(a, "Broadcast") && !is_pending(a, "BroadcastAxes")) {
      if (auto from_end = only_axis_from_end(a)) {
        product->weight->axis_from_end = *from_end;
      } else {
        value = Refused{"its parameter is no vector"};
      }
    }
  }

  const array& x_;
  int nodes_ = 0;
  std::unordered_map<std::uintptr_t, Value> values_;
};

using Result = std::variant<WrittenNorm, std::string>;

// Whether the number is sqrt(length), as an array of some dtype has it, which
// makes the mean of a sum of squares.
bool is_root_of(int length, float number) {
  constexpr float kFloat32Error = 1e-6f; // of a root that Python computes
  auto root = std::sqrt(static_cast<float>(length));
  return std::abs(number - root) <= kFloat32Error * root ||
      number == rounded_to(root, mx::float16) ||
      number == rounded_to(root, mx::bfloat16);
}

using Reason = std::optional<std::string>;

// Takes the sum or mean of squares, or says why no kernel of ours has it.
Reason take_moment(WrittenNorm& norm, const Product& product, const array& x) {
  const auto& over = *product.over;
  if (product.centered != over.centered ||
      (over.centered && *over.centered != over.axis)) {
    return product.centered ? "its mean and variance are not of the same rows"
                            : "it divides by a deviation of x, not of its mean";
  }
  if (over.mean) {
    return over.eps_bounds
        ? Reason("its eps bounds the mean instead of being added to it")
        : std::nullopt;
  }
  if (over.centered) {
    return "it divides by a sum of squares, not by their mean";
  }
  int length = x.shape(over.axis);
  if (!over.eps_bounds && is_root_of(length, norm.number)) {
    norm.eps = over.eps / length;
    norm.number = 1.0f;
    return std::nullopt;
  }
  norm.kind = WrittenNorm::Kind::L2;
  norm.eps_bounds = over.eps_bounds;
  if (over.axis != x.ndim() - 1) {
    return "it is an l2 norm over another axis than the last one";
  }
  return product.weight ? Reason("it is an l2 norm with a weight")
                        : std::nullopt;
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
  if (product.weight) {
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
  if (weight.axis_from_end != x.ndim() - axis ||
      parameter.size() != x.shape(axis)) {
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
      .dtype = output.dtype(),
      .number = product.number};
  if (auto why = take_moment(norm, product, x)) {
    return *why;
  }
  if (auto why = why_not_number(norm, product, bias.has_value())) {
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
  Reader reader(x, parameters);
  const auto& value = reader.value_of(output);
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
