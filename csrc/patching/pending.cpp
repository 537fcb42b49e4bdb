// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/pending.h"

#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "csrc/common/activations.h"
#include "csrc/common/checks.h"
#include "csrc/common/float16.h"
#include "mlx/mlx.h"

namespace mlx_norms {

namespace {

// The node of mx.compile whose only output `a` is; or null. Its lib_name()
// tells its structure, dtypes and constants.
const mx::Compiled* as_compiled(const array& a) {
  if (!is_pending(a) || !a.siblings().empty()) {
    return nullptr;
  }
  auto& primitive = a.primitive();
  return typeid(primitive) == typeid(mx::Compiled)
      ? static_cast<const mx::Compiled*>(&primitive)
      : nullptr;
}

// Whether `a` is what mx.compile(lambda x, y: x + y, shapeless=True) computes:
// A and B, broadcast to each other as C and D, and C + D.
bool is_compiled_sum(const array& a) {
  if (!is_pending(a, "CompiledBroadcastBroadcastAdd")) {
    return false;
  }
  auto* compiled = as_compiled(a);
  if (!compiled) {
    return false;
  }
  auto name = compiled->lib_name(); // has a letter per array
  auto c = name.find("IBroadcastABD");
  auto d = name.find("IBroadcastBAE");
  auto sum = name.find("OAddCD_");
  return c < d && d < sum && sum != std::string::npos;
}

bool is_constant(const array& a, float number) {
  return as_number(before_broadcast(a)) == rounded_to(number, a.dtype());
}

// The array beside a constant; null: there is none.
const array* beside_constant(const array& a, const char* name, float number) {
  if (!is_pending(a, name)) {
    return nullptr;
  }
  const auto& in = a.inputs();
  bool commutes = !is_pending(a, "Divide");
  return is_constant(in[1], number)            ? &in[0]
      : commutes && is_constant(in[0], number) ? &in[1]
                                               : nullptr;
}

// x * (1 + erf(x / sqrt(2))) / 2, as mlx.nn writes it.
const array* as_gelu(const array& a) {
  auto* product = beside_constant(a, "Divide", 2.0f);
  if (!product || !is_pending(*product, "Multiply")) {
    return nullptr;
  }
  for (int i : {0, 1}) {
    const auto& x = product->inputs()[i];
    auto* erf = beside_constant(product->inputs()[1 - i], "Add", 1.0f);
    if (erf && is_pending(*erf, "Erf")) {
      auto* of = beside_constant(
          erf->inputs()[0], "Divide", std::numbers::sqrt2_v<float>);
      if (of && of->id() == x.id()) {
        return &x;
      }
    }
  }
  return nullptr;
}

Function activation_of(Activation activation) {
  return [activation](const Arrays& in) -> Arrays {
    auto stream = mx::default_stream(mx::default_device());
    return {activated(activation, in[0], stream)};
  };
}

Arrays swiglu(const Arrays& in) {
  auto silu = mx::multiply(in[0], mx::sigmoid(in[0]));
  return {mx::multiply(silu, in[1])};
}

// As in mlx_lm's gemma3.
Arrays clip_residual(const Arrays& in) {
  auto sum =
      mx::add(mx::astype(in[0], mx::float32), mx::astype(in[1], mx::float32));
  auto clipped = mx::clip(sum, array(-kFloat16Max), array(kFloat16Max));
  return {mx::astype(clipped, mx::float16)};
}

// What mx.compile makes one node of, and models have as such.
enum class CompiledOp { Silu, Gelu, Relu2, SwiGlu, ClampedSum };

using Names = std::map<std::string, CompiledOp>;

// MLX's names for these nodes, of this dtype: they tell the structure and the
// constants. None within a trace, where nothing is compiled.
Names compiled_names(mx::Dtype dtype) {
  Names names;
  auto x = mx::zeros({1, 1}, dtype);
  auto add = [&](CompiledOp op, const Function& f, bool shapeless) {
    // No plain function, whose trace MLX would keep.
    Function anew = [&f](const Arrays& in) { return f(in); };
    auto out = mx::compile(anew, shapeless)({x, x + x})[0];
    if (auto* compiled = as_compiled(out)) {
      names.emplace(compiled->lib_name(), op);
    }
  };
  add(CompiledOp::Silu, activation_of(Activation::Silu), true);
  add(CompiledOp::Gelu, activation_of(Activation::Gelu), true);
  add(CompiledOp::Relu2, activation_of(Activation::Relu2), true);
  add(CompiledOp::SwiGlu, swiglu, true);
  if (dtype == mx::float16) {
    add(CompiledOp::ClampedSum, clip_residual, true);
    add(CompiledOp::ClampedSum, clip_residual, false);
  }
  return names;
}

std::optional<CompiledOp> compiled_op(const array& a) {
  auto* compiled = takes_dtype(a.dtype()) ? as_compiled(a) : nullptr;
  if (!compiled) {
    return std::nullopt;
  }
  thread_local std::map<mx::Dtype::Val, Names> by_dtype;
  auto& names = by_dtype[a.dtype().val()];
  if (names.empty() && !in_transform()) {
    names = compiled_names(a.dtype());
  }
  auto found = names.find(compiled->lib_name());
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

} // namespace

bool is_reshape(std::string_view primitive) {
  return primitive == "Reshape" || primitive == "Flatten" ||
      primitive == "Unflatten" || primitive == "Squeeze" ||
      primitive == "ExpandDims";
}

bool joins_last_axes(const array& join, const array& a) {
  return is_reshape(name_of(join)) && join.ndim() > 0 && a.ndim() > 1 &&
      join.shape(-1) == a.shape(-2) * a.shape(-1);
}

const array& before_reshape(const array& a) {
  return is_reshape(name_of(a)) ? a.inputs()[0] : a;
}

const array& before_broadcast(const array& a) {
  return is_pending(a, "Broadcast") ? a.inputs()[0] : a;
}

const array& before_cast(const array& x, mx::Stream stream) {
  if (x.dtype() != mx::float32 || !is_pending(x, "AsType") ||
      x.primitive().stream() != stream) {
    return x;
  }
  const auto& narrow = x.inputs()[0];
  bool read = narrow.dtype() == mx::float16 || narrow.dtype() == mx::bfloat16;
  return read ? narrow : x;
}

array made_by(
    const std::shared_ptr<mx::Primitive>& node,
    const mx::Shape& shape,
    mx::Dtype dtype,
    Arrays inputs) {
  std::string_view name = node->name();
  if (name == "Reshape") {
    return mx::reshape(inputs[0], shape, node->stream());
  }
  if (name == "Broadcast" && inputs.size() == 1) {
    return mx::broadcast_to(inputs[0], shape, node->stream());
  }
  return array(shape, dtype, node, std::move(inputs));
}

bool is_like(const array& a, const array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype();
}

bool is_sum(const array& a) {
  return (is_pending(a, "Add") || is_compiled_sum(a)) && a.siblings().empty() &&
      a.inputs().size() == 2 && is_like(a.inputs()[0], a) &&
      is_like(a.inputs()[1], a);
}

bool repeats_along_row(const array& operand) {
  auto length = operand.shape(-1);
  if (is_pending(operand, "Broadcast")) {
    const auto& whole = operand.inputs()[0];
    return whole.ndim() == 0 || whole.shape(-1) != length;
  }
  return operand.status() != array::Status::unscheduled && length > 1 &&
      operand.strides(-1) == 0;
}

std::optional<ShiftedWeight> as_shifted(const array& weight) {
  if (!is_sum(weight)) {
    return std::nullopt;
  }
  for (int i : {0, 1}) {
    const auto& number = weight.inputs()[i];
    if (!is_pending(number, "Broadcast")) {
      continue;
    }
    auto offset = as_number(number.inputs()[0]);
    if (offset && *offset != 0) {
      return ShiftedWeight{weight.inputs()[1 - i], *offset};
    }
  }
  return std::nullopt;
}

bool does_nothing(const array& parameter, float number, const array& x) {
  return x.is_tracer() && !parameter.is_tracer() &&
      as_number_throughout(parameter) == number;
}

OptionalArray as_scale(const array& factor, int most_views) {
  if (most_views == 0) {
    return std::nullopt;
  }
  if (is_pending(factor, "AsType")) {
    const auto& narrow = before_cast(factor, factor.primitive().stream());
    return narrow.id() == factor.id() ? std::nullopt
                                      : as_scale(narrow, most_views - 1);
  }
  if (const auto& moved = before_reshape(factor); moved.id() != factor.id()) {
    auto before = as_scale(moved, most_views - 1);
    if (!before) {
      return std::nullopt;
    }
    return made_by(
        factor.primitive_ptr(), factor.shape(), before->dtype(), {*before});
  }
  auto* scale = beside_constant(factor, "Add", 1.0f);
  return scale && scale->dtype() == factor.dtype() ? OptionalArray(*scale)
                                                   : std::nullopt;
}

array as_vector(const array& parameter, mx::StreamOrDevice stream) {
  return parameter.ndim() == 1 ? parameter : mx::flatten(parameter, stream);
}

std::optional<Activated> as_activation(const array& a) {
  if (is_pending(a, "Sigmoid")) {
    return Activated{Activation::Sigmoid, a.inputs()[0], 1};
  }
  if (is_pending(a, "Square")) {
    auto* of = beside_constant(a.inputs()[0], "Maximum", 0.0f);
    return of ? std::optional(Activated{Activation::Relu2, *of, 1})
              : std::nullopt;
  }
  if (is_pending(a, "Multiply")) {
    for (int i : {0, 1}) {
      const auto& x = a.inputs()[i];
      const auto& sigmoid = a.inputs()[1 - i];
      if (is_pending(sigmoid, "Sigmoid") &&
          sigmoid.inputs()[0].id() == x.id()) {
        return Activated{Activation::Silu, x, 2};
      }
    }
  }
  if (auto* of = as_gelu(a)) {
    return Activated{Activation::Gelu, *of, 2};
  }
  auto op = compiled_op(a); // its other inputs are constants
  if (!op || *op > CompiledOp::Relu2 || !is_like(a.inputs()[0], a)) {
    return std::nullopt;
  }
  auto activation = *op == CompiledOp::Silu ? Activation::Silu
      : *op == CompiledOp::Gelu             ? Activation::Gelu
                                            : Activation::Relu2;
  return Activated{activation, a.inputs()[0], 1};
}

std::optional<Gated> as_gated(const array& a) {
  return compiled_op(a) == CompiledOp::SwiGlu
      ? std::optional(Gated{a.inputs()[0], a.inputs()[1]})
      : std::nullopt;
}

bool is_clamped_sum(const array& a) {
  return compiled_op(a) == CompiledOp::ClampedSum &&
      is_like(a.inputs()[0], a) && is_like(a.inputs()[1], a);
}

array clamped_sum(const array& x, const array& residual, mx::Stream stream) {
  mx::StreamContext context(stream);
  return mx::compile(clip_residual, /* shapeless= */ true)({x, residual})[0];
}

bool in_transform() {
  static const auto& tracer = [] -> const array& { // never freed
    auto* a = new array(0.0f);
    a->set_tracer(true);
    return *a;
  }();
  return tracer.is_tracer();
}

} // namespace mlx_norms
