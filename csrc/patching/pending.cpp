// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/pending.h"

#include <algorithm>

#include "mlx/ops.h"

namespace mlx_norms {

namespace {

// Whether `a` is what mx.compile(lambda x, y: x + y, shapeless=True) computes:
// A and B, broadcast to each other as C and D, and C + D.
bool is_compiled_sum(const array& a) {
  if (!is_pending(a, "CompiledBroadcastBroadcastAdd")) {
    return false;
  }
  auto* compiled = dynamic_cast<mx::Compiled*>(&a.primitive());
  if (!compiled) {
    return false;
  }
  auto name = compiled->lib_name(); // has a letter per array
  auto c = name.find("IBroadcastABD");
  auto d = name.find("IBroadcastBAE");
  auto sum = name.find("OAddCD_");
  return c < d && d < sum && sum != std::string::npos;
}

} // namespace

bool is_reshape(std::string_view primitive) {
  return primitive == "Reshape" || primitive == "Flatten" ||
      primitive == "Unflatten" || primitive == "Squeeze" ||
      primitive == "ExpandDims";
}

const array& before_reshape(const array& a) {
  bool moves = is_pending(a) && is_reshape(a.primitive().name());
  return moves ? a.inputs()[0] : a;
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

bool is_pending_sum(const array& a) {
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
  if (!is_pending_sum(weight)) {
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

namespace {

// Calls visit(node) for `a` and the nodes above it. Returns false if there are
// more than `walk`; then only the first ones are visited.
template <typename F>
bool walk_above(const array& a, const InputsOf& inputs_of, int walk, F visit) {
  visit(a);
  if (!is_pending(a)) { // as nearly all parameters
    return true;
  }
  std::vector<const array*> stack; // as nodes hold them
  auto push_inputs = [&](const array& node) {
    for (const auto& in : inputs_of(node)) {
      stack.push_back(&in);
    }
  };
  push_inputs(a);
  for (int seen = 1; !stack.empty(); ++seen) {
    if (seen >= walk) {
      return false;
    }
    const auto& node = *stack.back();
    stack.pop_back();
    visit(node);
    if (is_pending(node)) {
      push_inputs(node);
    }
  }
  return true;
}

bool is_argument_of_transform(const array& a) {
  return a.status() == array::Status::unscheduled && !a.has_primitive();
}

} // namespace

const mx::Compiled* as_compiled(const array& a) {
  return is_pending(a) && a.siblings().empty()
      ? dynamic_cast<const mx::Compiled*>(&a.primitive())
      : nullptr;
}

std::string compiled_name(
    const std::function<Arrays(const Arrays&)>& f,
    const Arrays& inputs,
    bool shapeless) {
  if (in_transform()) {
    return "";
  }
  // No plain function, whose trace MLX would keep.
  std::function<Arrays(const Arrays&)> traced_anew = [&f](const Arrays& in) {
    return f(in);
  };
  auto out = mx::compile(traced_anew, shapeless)(inputs)[0];
  auto* compiled = as_compiled(out);
  return compiled ? compiled->lib_name() : "";
}

bool in_transform() {
  static const auto& tracer = [] -> const array& { // never freed
    auto* a = new array(0.0f);
    a->set_tracer(true);
    return *a;
  }();
  return tracer.is_tracer();
}

Ancestry look_above(
    const array& a,
    const array& looked_for,
    const InputsOf& inputs_of,
    int walk) {
  Ancestry found;
  found.ends = walk_above(a, inputs_of, walk, [&](const array& node) {
    found.meets |= node.id() == looked_for.id();
    // An argument of vmap or compile may have lost its flag to a gradient.
    found.traced |= node.is_tracer() || is_argument_of_transform(node);
  });
  return found;
}

} // namespace mlx_norms
