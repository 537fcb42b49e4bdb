// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/rope_of_norm.h"

#include <algorithm>
#include <stdexcept>
#include <typeinfo>

#include "csrc/patching/holders.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/pending.h"

namespace mlx_norms {

namespace {

// The node of a pending array that is its only output, if it is of this op.
template <typename Op>
Node<Op>* node_of(const array& a) {
  if (!is_pending(a) || !a.siblings().empty()) {
    return nullptr;
  }
  auto& primitive = a.primitive();
  return typeid(primitive) == typeid(Node<Op>)
      ? static_cast<Node<Op>*>(&primitive)
      : nullptr;
}

// Whether `a` has heads and tokens exchanged: transpose(0, 2, 1, 3).
bool swaps_heads(const array& a) {
  static const std::vector<int> axes{0, 2, 1, 3};
  return a.ndim() == 4 && is_pending(a, "Transpose") &&
      state_of<mx::Transpose>(a) == axes;
}

// A pending norm whose result is [B, H, L, D], by a transpose after it or
// before.
struct NormOfHeads {
  const array& normalized;
  const array& x; // [B, L, H, D]
  const array& transpose;
};

std::optional<NormOfHeads> as_norm_of_heads(const array& a) {
  if (a.ndim() != 4 || !is_pending(a) || a.inputs().empty()) {
    return std::nullopt;
  }
  const auto& in = a.inputs()[0];
  if (node_of<Norm>(in)) {
    return swaps_heads(a) ? std::optional(NormOfHeads{in, in.inputs()[0], a})
                          : std::nullopt;
  }
  return node_of<Norm>(a) && swaps_heads(in)
      ? std::optional(NormOfHeads{a, in.inputs()[0], in})
      : std::nullopt;
}

// Whether norm_rope computes the norm, too.
bool suits_rope(const Norm& norm, const array& x, const array* weight) {
  const auto& spec = norm.spec;
  return spec.is_basic() && !spec.center && !spec.clamp && !spec.identity &&
      spec.n_inputs() == 1 + (weight != nullptr) &&
      (!weight || weight->ndim() == 1) && norm.dtypes.size() == 1 &&
      norm.dtypes[0] == x.dtype() && x.size() > 0;
}

// What the latest node of this thread was made of, as long as it is pending.
struct Latest {
  WeakArray y;
  bool in_transform = false;
  std::variant<int, std::uintptr_t> offset; // a number, or an array's id
  std::uintptr_t freqs = 0;                 // 0: none
};
thread_local Latest latest;

Latest noted(const array& y, const RopeOptions& options) {
  Latest of;
  of.y = WeakArray(y);
  of.in_transform = in_transform();
  if (auto* number = std::get_if<int>(&options.offset)) {
    of.offset = *number;
  } else {
    of.offset = std::get<array>(options.offset).id();
  }
  of.freqs = options.freqs ? options.freqs->id() : 0;
  return of;
}

// Whether none of `arrays` depends on `y`, nor on an argument of a transform
// that y does not depend on: if within a short walk each branch ends at an
// array that is evaluated, or above y.
bool are_apart(const Arrays& arrays, const array& y) {
  constexpr size_t kMaxNodes = 32;
  std::vector<std::uintptr_t> above; // y
  Arrays nodes = y.inputs();
  for (size_t i = 0; i < nodes.size() && above.size() < kMaxNodes; ++i) {
    auto node = nodes[i];
    if (node.status() != array::Status::unscheduled) {
      continue;
    }
    above.push_back(node.id());
    if (node.has_primitive()) {
      nodes.insert(nodes.end(), node.inputs().begin(), node.inputs().end());
    }
  }
  std::vector<std::uintptr_t> seen;
  Arrays stack = arrays;
  while (!stack.empty()) {
    auto node = std::move(stack.back());
    stack.pop_back();
    auto is_in = [&](const std::vector<std::uintptr_t>& ids) {
      return std::ranges::find(ids, node.id()) != ids.end();
    };
    if (node.status() != array::Status::unscheduled || is_in(above) ||
        is_in(seen)) {
      continue;
    }
    if (seen.size() >= kMaxNodes || !node.has_primitive() ||
        node.id() == y.id()) {
      return false;
    }
    seen.push_back(node.id());
    stack.insert(stack.end(), node.inputs().begin(), node.inputs().end());
  }
  return true;
}

bool is_traced(const Arrays& arrays) {
  return std::ranges::any_of(
      arrays, [](const array& a) { return a.is_tracer(); });
}

// The rope of `k` as an output of the node of the latest one, which is extended
// in place for all who hold its result; nullopt if it may not be.
OptionalArray
joined(const Call<NormRope>& k, const RopeOptions& options, mx::Stream stream) {
  auto y = latest.y.get();
  auto* node = y ? node_of<NormRope>(*y) : nullptr;
  if (!node || node->stream() != stream || node->op() != k.op) {
    return std::nullopt;
  }
  const auto& q_in = y->inputs();
  const auto& q = q_in[0];
  const auto& x = k.inputs[0];
  auto like = noted(*y, options);
  bool is_alike = like.offset == latest.offset && like.freqs == latest.freqs &&
      like.in_transform == latest.in_transform && q.shape(0) == x.shape(0) &&
      q.shape(1) == x.shape(1) && q.shape(3) == x.shape(3);
  // In a transform what depends on nothing of it may belong to another one.
  bool traced = is_traced(k.inputs);
  if (!is_alike || traced != y->is_tracer() || traced != like.in_transform ||
      !are_apart(k.inputs, *y)) {
    return std::nullopt;
  }
  auto op = k.op;
  op.rotated = 2;
  op.dtypes.push_back(op.dtypes[0]);
  auto angles = k.op.offset_at();
  Arrays inputs(q_in.begin(), q_in.begin() + angles);
  inputs.insert(inputs.end(), k.inputs.begin(), k.inputs.begin() + angles);
  inputs.insert(inputs.end(), q_in.begin() + angles, q_in.end());
  if (!has_kernel(op, inputs, stream)) {
    return std::nullopt;
  }
  auto dtype = op.dtypes[1];
  auto shape = op.shape(inputs, 1);
  auto both = std::make_shared<Node<NormRope>>(stream, std::move(op));
  array second(std::move(shape), dtype, both, inputs);
  y->inputs() = std::move(inputs);
  y->primitive_ptr() = std::move(both);
  second.set_siblings(Arrays(1, *y), 1);
  y->set_siblings(Arrays(1, second), 0);
  return second;
}

} // namespace

bool is_norm_of_heads(const array& x) {
  return as_norm_of_heads(x).has_value();
}

OptionalArray patched_rope(const array& x, RopeOptions options) {
  auto heads = as_norm_of_heads(x);
  auto stream = mx::to_stream(options.stream);
  if (!heads || heads->normalized.primitive().stream() != stream ||
      heads->transpose.primitive().stream() != stream) {
    return std::nullopt;
  }
  // Else it is computed for those who hold it, too.
  bool is_used_once = is_held_once(heads->normalized) && is_held_once(x);
  const auto& norm = node_of<Norm>(heads->normalized)->op();
  NormInputs in(norm.spec.operands, heads->normalized.inputs().data());
  if (!is_used_once || !suits_rope(norm, heads->x, in[kWeight])) {
    return std::nullopt;
  }
  options.eps = norm.spec.eps;
  options.weight_offset = norm.spec.weight_offset;
  options.rounding = norm.spec.rounding == Rounding::Late ? "late" : "early";
  options.stream = stream;
  try {
    auto call = norm_rope_call(heads->x, in[kWeight], options);
    if (auto y = joined(call, options, stream)) {
      latest = {};
      count_rope(/* joins_another= */ true);
      return y;
    }
    if (!has_kernel(call.op, call.inputs, stream)) {
      return std::nullopt;
    }
    auto y = node(std::move(call.op), std::move(call.inputs), stream)[0];
    latest = noted(y, options);
    count_rope(/* joins_another= */ false);
    return y;
  } catch (const std::invalid_argument&) { // left to MLX, as its message is
    return std::nullopt;
  }
}

} // namespace mlx_norms
