// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <cstring>
#include <map>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "csrc/patching/graph.h"

namespace mlx_norms {

namespace {

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

// The inner nodes above the outputs, each after its inputs.
Arrays in_order(const Graph& graph) {
  struct Visit {
    array node;
    bool inputs_done;
  };
  Arrays order;
  std::unordered_set<std::uintptr_t> seen;
  std::vector<Visit> stack;
  for (auto& a : graph.roots()) {
    stack.push_back({a, false});
  }
  while (!stack.empty()) {
    auto [node, inputs_done] = std::move(stack.back());
    stack.pop_back();
    if (inputs_done) {
      order.push_back(std::move(node));
    } else if (
        is_pending(node) && !graph.is_boundary(node) &&
        seen.insert(node.id()).second) {
      stack.push_back({node, true});
      for (auto& in : graph.inputs_of(node)) {
        stack.push_back({in, false});
      }
    }
  }
  return order;
}

class Rebuilding {
 public:
  explicit Rebuilding(const Graph& graph) : graph_(graph) {}

  Arrays run() {
    for (auto& a : in_order(graph_)) {
      build(a);
    }
    return present(graph_.roots());
  }

 private:
  Arrays present(const Arrays& arrays) const;
  void build(const array& a);

  using Key = std::vector<uint64_t>;
  Key key_of(mx::Primitive& node, const Arrays& inputs);
  const Arrays* find_equal(
      const std::vector<Arrays>& alike,
      mx::Primitive& node,
      const Arrays& old) const;

  const Graph& graph_;
  std::unordered_map<std::uintptr_t, array> built_;
  // Equal nodes are merged where mx.compile may: it fails at some that have
  // several outputs.
  const bool merges_ = in_transform();
  std::map<Key, std::vector<Arrays>> nodes_;
  std::map<std::pair<uint64_t, mx::Dtype::Val>, std::uintptr_t> numbers_;
};

// The arrays, or what was rebuilt in their place.
Arrays Rebuilding::present(const Arrays& arrays) const {
  Arrays present;
  for (auto& a : arrays) {
    auto it = built_.find(a.id());
    present.push_back(it == built_.end() ? a : it->second);
  }
  return present;
}

void Rebuilding::build(const array& a) {
  if (built_.count(a.id())) {
    return; // built with a sibling
  }
  auto* rewrite = graph_.rewrite_of(a);
  auto old = rewrite ? rewrite->old : a.outputs();
  const auto& node = rewrite ? rewrite->node : a.primitive_ptr();
  auto inputs = present(graph_.inputs_of(a));
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
    bool is_new = !graph_.is_inner(old[i]);
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
Rebuilding::Key Rebuilding::key_of(mx::Primitive& node, const Arrays& inputs) {
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
const Arrays* Rebuilding::find_equal(
    const std::vector<Arrays>& alike,
    mx::Primitive& node,
    const Arrays& old) const {
  auto is_root = [&](const array& a) { return graph_.is_root(a); };
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

} // namespace

Arrays rebuilt(const Graph& graph) {
  return graph.has_plans() ? Rebuilding(graph).run() : graph.roots();
}

} // namespace mlx_norms
