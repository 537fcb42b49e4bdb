// Copyright © 2026 mlx_norms contributors
//
// Nodes that are planned to take the places of others in a graph, and the graph
// that is built by the plan.

#pragma once

#include <unordered_map>

#include "csrc/patching/pending_graph.h"

namespace mlx_norms {

// A node that takes the place of others, and the arrays that its outputs
// replace.
struct Rewrite {
  Arrays old;
  std::shared_ptr<mx::Primitive> node;
  Arrays inputs; // of the graph as it was
};

class RewrittenGraph {
 public:
  // Between the boundary and the outputs, which must outlive it.
  RewrittenGraph(const Arrays& outputs, size_t nodes, const Arrays& boundary)
      : outputs_(outputs),
        before_(outputs, nodes, boundary) {}

  // As it was.
  const PendingGraph& before() const {
    return before_;
  }

  // That of which `a` is an output; null: none.
  const Rewrite* rewrite_of(const array& a) const;

  // An output of the only operation that takes `a`, once; null: others do, too.
  const array* sole_taker(const array& a) const;

  // The inputs of a node after all that is planned.
  InputsOf inputs_after() const {
    return [this](const array& a) -> const Arrays& { return inputs_of(a); };
  }

  // Whether an operand is known not to be computed from `a`.
  bool is_independent(const array& operand, const array& a) const;

  void add(Rewrite rewrite);

  // The outputs, of what is planned and what it needs.
  Arrays build();

 private:
  const Arrays& inputs_of(const array& a) const;
  Arrays in_order() const;
  Arrays present(const Arrays& arrays) const;
  void build(const array& a);
  void make(
      const Arrays& old,
      const std::shared_ptr<mx::Primitive>& node,
      Arrays inputs);

  const Arrays& outputs_;
  PendingGraph before_;
  std::vector<Rewrite> rewrites_;
  std::unordered_map<std::uintptr_t, size_t> rewrite_by_array_;
  std::unordered_map<std::uintptr_t, array> built_;
};

// How far to look above a scale, as from a model's timestep.
constexpr int kFarWalk = 256;

} // namespace mlx_norms
