// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/pending_graph.h"

#include <algorithm>

namespace mlx_norms {

namespace {

constexpr size_t kNodes = 4096; // about those of a decoding step

} // namespace

PendingGraph::PendingGraph(const Arrays& roots) {
  nodes_.reserve(kNodes);
  links_.reserve(kNodes);
  uses_.reserve(kNodes);
  for (const auto& root : roots) {
    if (is_pending(root)) {
      visit(root);
      uses_.at(root.id()).root = true;
    }
  }
  // Those found are looked at in turn: no recursion, however deep the graph.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    auto node = nodes_[i];
    for (const auto& in : node.inputs()) {
      if (is_pending(in)) {
        visit(in);
        auto& uses = uses_.at(in.id());
        links_.push_back({static_cast<int>(i), uses.last});
        uses.last = links_.size() - 1;
        ++uses.count;
      }
    }
  }
}

void PendingGraph::visit(const array& a) {
  if (uses_.try_emplace(a.id(), Uses{static_cast<int>(nodes_.size())}).second) {
    nodes_.push_back(a);
  }
}

const PendingGraph::Uses* PendingGraph::uses_of(const array& a) const {
  auto it = uses_.find(a.id());
  return it == uses_.end() ? nullptr : &it->second;
}

Arrays PendingGraph::takers(const array& a) const {
  Arrays takers;
  if (auto* uses = uses_of(a)) {
    for (int i = uses->last; i >= 0; i = links_[i].previous) {
      takers.push_back(nodes_[links_[i].taker]);
    }
  }
  return takers;
}

const array* PendingGraph::only_taker(const array& a) const {
  auto* uses = uses_of(a);
  return uses && uses->count == 1 && !uses->root
      ? &nodes_[links_[uses->last].taker]
      : nullptr;
}

bool PendingGraph::is_root(const array& a) const {
  auto* uses = uses_of(a);
  return uses && uses->root;
}

} // namespace mlx_norms
