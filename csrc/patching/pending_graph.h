// Copyright © 2026 mlx_norms contributors
//
// The pending nodes above some arrays, and the nodes that use each.

#pragma once

#include <cstdint>
#include <vector>

#include "csrc/patching/pending.h"

namespace mlx_norms {

// Nodes are the arrays by which the roots or other nodes' inputs hold them: a
// pass looks at every node of every step, and a copy counts references. So the
// roots must outlive the graph, and inputs are changed by set_inputs().
class PendingGraph {
 public:
  // `nodes` is about how many there may be. What is above the boundary is not
  // looked at, nor are its arrays' own operations.
  explicit PendingGraph(
      const Arrays& roots,
      size_t nodes,
      const Arrays& boundary = {});
  PendingGraph(const PendingGraph&) = delete;

  // Norms of this package and MLX's quantized products, those nearest to the
  // roots first.
  const std::vector<const array*>& norms() const {
    return norms_;
  }
  const std::vector<const array*>& products() const {
    return products_;
  }
  // Likewise this package's group norms and norms over another axis, and MLX's
  // roots and powers, one of which every norm that is written in operations
  // takes.
  const std::vector<const array*>& channel_norms() const {
    return channel_norms_;
  }
  const std::vector<const array*>& powers() const {
    return powers_;
  }
  // Likewise ropes, of MLX or of this package.
  const std::vector<const array*>& ropes() const {
    return ropes_;
  }

  // Calls visit(node) for the nodes that used `a` at first, once per use; the
  // furthest from the roots first.
  template <typename F>
  void for_takers(const array& a, F visit) const {
    all_takers(a, [&](const array& taker) {
      visit(taker);
      return true;
    });
  }

  // Whether test(node) holds for all of them, up to the first for which not.
  template <typename F>
  bool all_takers(const array& a, F test) const {
    auto* node = find(a);
    for (int i = node ? node->last_use : -1; i >= 0; i = uses_[i].previous) {
      if (!test(*nodes_[uses_[i].taker].held)) {
        return false;
      }
    }
    return true;
  }

  // The only node that uses `a`; null if there is no single one, or `a` is a
  // root.
  const array* only_taker(const array& a) const;

  bool is_root(const array& a) const;

  // Whether it stays what it is: a root, or held by more than the graph, of
  // which only a graph with holders knows.
  bool is_kept(const array& a) const;
  void note_holders(); // before anything of it is copied

  // The nodes that are held by more than the graph, without the roots, and
  // all copies, which may be the primals of a derivative.
  Arrays held() const;

  size_t size() const {
    return nodes_.size();
  }

  // Whether it is a node that was looked at.
  bool is_inner(const array& a) const;
  bool is_boundary(const array& a) const;

  void set_inputs(array& node, Arrays inputs);

 private:
  struct Node {
    std::uintptr_t id;
    const array* held;
    int last_use = -1; // in uses_
    bool root = false;
    bool boundary = false;
    bool shared = false; // held by more than the graph
  };
  struct Use {
    int taker;    // in nodes_
    int previous; // in uses_
  };

  Node& visit(const array& a);
  const Node* find(const array& a) const;
  template <typename F>
  void for_unseen_siblings(const array& node, F visit) const;
  size_t slot_of(std::uintptr_t id) const;
  void grow();

  std::vector<Node> nodes_; // those nearest to the roots first
  std::vector<Use> uses_;
  std::vector<const array*> norms_;
  std::vector<const array*> products_;
  std::vector<const array*> channel_norms_;
  std::vector<const array*> powers_;
  std::vector<const array*> ropes_;
  std::vector<Arrays> replaced_; // inputs, which hold nodes
  // A hash table of indices into nodes_, with open addressing. Its size is a
  // power of two, and at most half is used.
  std::vector<int> slots_;
};

} // namespace mlx_norms
