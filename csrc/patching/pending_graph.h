// Copyright © 2026 mlx_norms contributors
//
// The pending nodes above some arrays, and the nodes that use each.

#pragma once

#include "csrc/patching/pending.h"

namespace mlx_norms {

class PendingGraph {
 public:
  explicit PendingGraph(const Arrays& roots);

  // All nodes, those nearest to the roots first.
  const Arrays& nodes() const {
    return nodes_;
  }

  // The nodes that use `a`, once per use; the last of nodes() first.
  Arrays takers(const array& a) const;

  // The only node that uses `a`; null if there is no single one, or `a` is a
  // root.
  const array* only_taker(const array& a) const;

  bool is_root(const array& a) const;

 private:
  struct Uses {
    int count = 0; // of takers
    int last = -1; // in links_
    bool root = false;
  };
  struct Link {
    int taker;    // in nodes_
    int previous; // in links_
  };

  Uses& visit(const array& a);
  const Uses* uses_of(const array& a) const;
  size_t slot_of(const array& a) const;
  void grow();

  Arrays nodes_;
  std::vector<Uses> uses_; // of each node
  std::vector<Link> links_;
  // A hash table of indices into nodes_, with open addressing: a pass looks up
  // every node of every step. Its size is a power of two, and at most half is
  // used.
  std::vector<int> slots_;
};

} // namespace mlx_norms
