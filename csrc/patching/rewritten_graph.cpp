// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/rewritten_graph.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "csrc/common/outputs.h"

namespace mlx_norms {

namespace {

int times_taken(const array& a, const array& taker) {
  return std::ranges::count_if(
      taker.inputs(), [&](const array& in) { return in.id() == a.id(); });
}

// The outputs of `node` in place of these.
Arrays outputs_like(
    const Arrays& old,
    const std::shared_ptr<mx::Primitive>& node,
    Arrays inputs) {
  if (old.size() == 1) {
    return {made_by(node, old[0].shape(), old[0].dtype(), std::move(inputs))};
  }
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (auto& a : old) {
    shapes.push_back(a.shape());
    dtypes.push_back(a.dtype());
  }
  return array::make_arrays(std::move(shapes), dtypes, node, std::move(inputs));
}

} // namespace

const Rewrite* RewrittenGraph::rewrite_of(const array& a) const {
  auto it = rewrite_by_array_.find(a.id());
  return it == rewrite_by_array_.end() ? nullptr : &rewrites_[it->second];
}

const Arrays& RewrittenGraph::inputs_of(const array& a) const {
  static const Arrays none;
  auto* rewrite = rewrite_of(a);
  return rewrite ? rewrite->inputs : before_.is_boundary(a) ? none : a.inputs();
}

const array* RewrittenGraph::sole_taker(const array& a) const {
  if (!before_.is_inner(a) || before_.is_kept(a) || is_taken(a)) {
    return nullptr;
  }
  const array* found = nullptr;
  bool others = false;
  before_.for_takers(a, [&](const array& taker) {
    found = found ? found : &taker;
    others |= node_id(taker) != node_id(*found);
  });
  bool is_sole = found && !others && times_taken(a, *found) == 1;
  return is_sole && !rewrite_of(*found) ? found : nullptr;
}

bool RewrittenGraph::is_independent(const array& operand, const array& a)
    const {
  auto above = look_above(operand, a, inputs_after(), kFarWalk);
  return above.ends && !above.meets;
}

bool RewrittenGraph::add(Rewrite rewrite) {
  if (std::ranges::any_of(
          rewrite.old, [this](const array& a) { return rewrite_of(a); })) {
    return false;
  }
  for (const auto& a : rewrite.old) {
    rewrite_by_array_[a.id()] = rewrites_.size();
  }
  for (const auto& a : rewrite.inputs) {
    taken_.insert(a.id());
  }
  rewrites_.push_back(std::move(rewrite));
  return true;
}

Arrays RewrittenGraph::build() {
  if (rewrites_.empty()) {
    return outputs_;
  }
  merges_ = in_transform();
  for (auto& a : in_order()) {
    build(a);
  }
  return present(outputs_);
}

bool RewrittenGraph::apply() {
  for (auto& [old, node, inputs] : rewrites_) {
    for (auto& a : old) {
      a.primitive_ptr() = node;
      before_.set_inputs(a, inputs);
      a.set_siblings({}, 0);
    }
    make_siblings(old);
  }
  return !rewrites_.empty();
}

// The inner nodes above the outputs, each after its inputs.
Arrays RewrittenGraph::in_order() const {
  struct Visit {
    array node;
    bool inputs_done;
  };
  Arrays order;
  std::unordered_set<std::uintptr_t> seen;
  std::vector<Visit> stack;
  for (auto& a : outputs_) {
    stack.push_back({a, false});
  }
  while (!stack.empty()) {
    auto [node, inputs_done] = std::move(stack.back());
    stack.pop_back();
    if (inputs_done) {
      order.push_back(std::move(node));
    } else if (
        is_pending(node) && !before_.is_boundary(node) &&
        seen.insert(node.id()).second) {
      stack.push_back({node, true});
      for (auto& in : inputs_of(node)) {
        stack.push_back({in, false});
      }
    }
  }
  return order;
}

// The arrays, or what was rebuilt in their place.
Arrays RewrittenGraph::present(const Arrays& arrays) const {
  Arrays present;
  for (auto& a : arrays) {
    auto it = built_.find(a.id());
    present.push_back(it == built_.end() ? a : it->second);
  }
  return present;
}

void RewrittenGraph::build(const array& a) {
  if (built_.count(a.id())) {
    return; // built with a sibling
  }
  auto* rewrite = rewrite_of(a);
  auto old = rewrite ? rewrite->old : a.outputs();
  const auto& node = rewrite ? rewrite->node : a.primitive_ptr();
  auto inputs = present(inputs_of(a));
  auto now = old;
  auto* alike = merges_ ? &nodes_[key_of(*node, inputs)] : nullptr;
  auto* equal = alike ? find_equal(*alike, *node, old) : nullptr;
  if (equal) {
    now = *equal;
  } else {
    bool changed = rewrite ||
        !std::ranges::equal(inputs, a.inputs(), {}, &array::id, &array::id);
    if (changed) {
      now = outputs_like(old, node, std::move(inputs));
    }
  }
  for (size_t i = 0; i < old.size(); ++i) {
    // An inner derivative took the flag from the inputs when it ended.
    bool is_new = !before_.is_inner(old[i]);
    if (is_new ? in_transform() : old[i].is_tracer()) {
      now[i].set_tracer(true);
    }
    built_.emplace(old[i].id(), now[i]);
  }
  if (alike && !equal) {
    alike->push_back(std::move(now));
  }
}

// What tells nodes apart, but for their state; constants by their value.
RewrittenGraph::Key RewrittenGraph::key_of(
    mx::Primitive& node,
    const Arrays& inputs) {
  Key key{typeid(node).hash_code()};
  for (const auto& a : inputs) {
    bool is_number = !a.has_primitive() && a.is_available() && a.ndim() == 0 &&
        a.itemsize() <= sizeof(uint64_t);
    if (is_number) {
      uint64_t bits = 0;
      std::memcpy(&bits, a.data<char>(), a.itemsize());
      auto of = std::pair(bits, a.dtype().val());
      key.push_back(numbers_.try_emplace(of, a.id()).first->second);
    } else {
      key.push_back(a.id());
    }
  }
  return key;
}

// The outputs of that one of nodes with the same key which computes the same;
// null: none.
const Arrays* RewrittenGraph::find_equal(
    const std::vector<Arrays>& alike,
    mx::Primitive& node,
    const Arrays& old) const {
  auto is_root = [&](const array& a) { return before_.is_root(a); };
  if (std::ranges::any_of(old, is_root)) {
    return nullptr;
  }
  for (const auto& outputs : alike) {
    auto& found = outputs[0].primitive();
    if (std::ranges::equal(outputs, old, is_like) &&
        typeid(found) == typeid(node) && found.stream() == node.stream() &&
        found.is_equivalent(node)) {
      return &outputs;
    }
  }
  return nullptr;
}

} // namespace mlx_norms
