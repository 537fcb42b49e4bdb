// Copyright © 2026 mlx_norms contributors
//
// Nodes that are planned to take the places of others in a graph, and the graph
// that is built by the plan.

#pragma once

#include <map>
#include <unordered_map>
#include <unordered_set>

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
  // Above the outputs, which must outlive it.
  RewrittenGraph(const Arrays& outputs, PendingGraph& before)
      : outputs_(outputs),
        before_(before) {}

  const Arrays& outputs() const {
    return outputs_;
  }

  // As it was.
  const PendingGraph& before() const {
    return before_;
  }

  // That of which `a` is an output; null: none.
  const Rewrite* rewrite_of(const array& a) const;

  // An output of the only operation that takes `a`, once, if nothing is planned
  // for it; null: others do, too, as what is planned, or `a` is kept.
  const array* sole_taker(const array& a) const;

  // Whether `a`, for which nothing is planned, has a sole taker, of which it
  // can become a part.
  bool is_part(const array& a) const {
    return sole_taker(a) && !rewrite_of(a);
  }

  // Whether a planned node takes it.
  bool is_taken(const array& a) const {
    return taken_.contains(a.id());
  }

  // The inputs of a node after all that is planned.
  InputsOf inputs_after() const {
    return [this](const array& a) -> const Arrays& { return inputs_of(a); };
  }

  // Whether an operand is known not to be computed from `a`.
  bool is_independent(const array& operand, const array& a) const;

  // Returns whether it is planned: an array is replaced once.
  bool add(Rewrite rewrite);

  // The outputs, of what is planned and what it needs. No array is changed.
  Arrays build();

  // Instead, makes the planned nodes those of the arrays that they replace, for
  // all who hold these. Returns whether anything was planned.
  bool apply();

 private:
  const Arrays& inputs_of(const array& a) const;
  Arrays in_order() const;
  Arrays present(const Arrays& arrays) const;
  void build(const array& a);

  using Key = std::vector<uint64_t>;
  Key key_of(mx::Primitive& node, const Arrays& inputs);
  const Arrays* find_equal(
      const std::vector<Arrays>& alike,
      mx::Primitive& node,
      const Arrays& old) const;

  const Arrays& outputs_;
  PendingGraph& before_;
  std::vector<Rewrite> rewrites_;
  std::unordered_map<std::uintptr_t, size_t> rewrite_by_array_;
  std::unordered_set<std::uintptr_t> taken_; // by rewrites
  std::unordered_map<std::uintptr_t, array> built_;
  // Equal nodes are merged where mx.compile may: it fails at some that have
  // several outputs.
  bool merges_ = false;
  std::map<Key, std::vector<Arrays>> nodes_;
  std::map<std::pair<uint64_t, mx::Dtype::Val>, std::uintptr_t> numbers_;
};

// How far to look above a scale, as from a model's timestep.
constexpr int kFarWalk = 256;

} // namespace mlx_norms
