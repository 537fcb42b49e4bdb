// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/fuse_graph.h"

#include <unordered_map>
#include <unordered_set>

#include "csrc/patching/fusion.h"

namespace mlx_norms {

namespace {

using Id = std::uintptr_t;

// A norm and the pending sum that it normalizes, which become one node.
struct FusedPair {
  array sum;
  array normalized;
  FusedNorm norm;
};

class Pass {
 public:
  explicit Pass(const Arrays& boundary) {
    for (auto& a : boundary) {
      boundary_.insert(a.id());
    }
  }

  Arrays run(const Arrays& outputs) {
    auto nodes = in_order(outputs);
    count_uses(nodes, outputs);
    for (auto& a : nodes) {
      plan(a);
    }
    if (pairs_.empty()) {
      return outputs;
    }
    for (auto& a : in_order(outputs)) {
      build(a);
    }
    count_graph_pass(pairs_.size());
    return present(outputs);
  }

 private:
  // Whether `a` is a node of the graph that may be rebuilt.
  bool is_inner(const array& a) const {
    return is_pending(a) && !boundary_.count(a.id());
  }

  const FusedPair* pair_of(const array& a) const {
    auto it = pair_by_array_.find(a.id());
    return it == pair_by_array_.end() ? nullptr : &pairs_[it->second];
  }

  // The inputs of a node after all planned fusions.
  const Arrays& inputs_of(const array& a) const {
    auto* pair = pair_of(a);
    return pair ? pair->norm.inputs : a.inputs();
  }

  void count_uses(const Arrays& nodes, const Arrays& outputs) {
    for (auto& node : nodes) {
      for (auto& in : node.inputs()) {
        ++uses_[in.id()];
      }
    }
    for (auto& a : outputs) {
      ++uses_[a.id()];
    }
  }

  // The inner nodes above `outputs`, each after its inputs.
  Arrays in_order(const Arrays& outputs) const {
    struct Visit {
      array node;
      bool inputs_done;
    };
    Arrays order;
    std::unordered_set<Id> seen;
    std::vector<Visit> stack;
    for (auto& a : outputs) {
      stack.push_back({a, false});
    }
    while (!stack.empty()) {
      auto [node, inputs_done] = std::move(stack.back());
      stack.pop_back();
      if (inputs_done) {
        order.push_back(std::move(node));
      } else if (is_inner(node) && seen.insert(node.id()).second) {
        stack.push_back({node, true});
        for (auto& in : inputs_of(node)) {
          stack.push_back({in, false});
        }
      }
    }
    return order;
  }

  // If `a` is a norm of this package, plans to fuse it with its sum.
  void plan(const array& a) {
    auto* node = dynamic_cast<Node<Norm>*>(&a.primitive());
    if (!node || !a.siblings().empty()) {
      return;
    }
    const auto& [spec, dtypes] = node->op();
    if (!spec.is_basic() || spec.has(kResidual)) {
      return;
    }
    const auto& sum = a.inputs()[0];
    Arrays parameters(a.inputs().begin() + 1, a.inputs().end());
    auto inputs_after = [this](const array& in) -> const Arrays& {
      return inputs_of(in);
    };
    if (!is_inner(sum) || pair_of(sum)) {
      return;
    }
    auto fused = fused_norm(
                     spec,
                     dtypes[0],
                     sum,
                     parameters,
                     node->stream(),
                     inputs_after,
                     [this](const array& in) {
                       return is_inner(in) && uses_.at(in.id()) == 1;
                     })
                     .first;
    if (!fused) {
      return;
    }
    pair_by_array_[sum.id()] = pairs_.size();
    pair_by_array_[a.id()] = pairs_.size();
    pairs_.push_back({sum, a, std::move(*fused)});
  }

  // The arrays, or what was rebuilt in their place.
  Arrays present(const Arrays& arrays) const {
    Arrays present;
    for (auto& a : arrays) {
      auto it = built_.find(a.id());
      present.push_back(it == built_.end() ? a : it->second);
    }
    return present;
  }

  void build(const array& a) {
    if (built_.count(a.id())) {
      return; // built with a sibling
    }
    if (auto* pair = pair_of(a)) {
      make(
          {pair->normalized, pair->sum},
          pair->norm.node,
          present(pair->norm.inputs));
      return;
    }
    auto inputs = present(a.inputs());
    bool changed = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      changed |= inputs[i].id() != a.inputs()[i].id();
    }
    if (changed) {
      make(a.outputs(), a.primitive_ptr(), std::move(inputs));
    }
  }

  // Makes outputs of `node` that replace `old`.
  void make(
      const Arrays& old,
      const std::shared_ptr<mx::Primitive>& node,
      Arrays inputs) {
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    for (auto& a : old) {
      shapes.push_back(a.shape());
      dtypes.push_back(a.dtype());
    }
    auto arrays =
        array::make_arrays(std::move(shapes), dtypes, node, std::move(inputs));
    for (size_t i = 0; i < old.size(); ++i) {
      built_.emplace(old[i].id(), arrays[i]);
    }
  }

  std::unordered_set<Id> boundary_;
  std::unordered_map<Id, int> uses_;
  std::vector<FusedPair> pairs_;
  std::unordered_map<Id, size_t> pair_by_array_;
  std::unordered_map<Id, array> built_;
};

} // namespace

Arrays fuse_graph(const Arrays& outputs, const Arrays& boundary) {
  return Pass(boundary).run(outputs);
}

} // namespace mlx_norms
