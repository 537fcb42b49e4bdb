// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/pending_graph.h"

namespace mlx_norms {

namespace {

constexpr size_t kNodes = 4096; // about as many as in a decoding step

} // namespace

PendingGraph::PendingGraph(const Arrays& roots) : slots_(4 * kNodes, -1) {
  nodes_.reserve(kNodes);
  uses_.reserve(kNodes);
  links_.reserve(2 * kNodes);
  for (const auto& root : roots) {
    if (is_pending(root)) {
      visit(root).root = true;
    }
  }
  // Goes through the nodes found so far: no recursion, however deep the graph.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    auto node = nodes_[i];
    for (const auto& in : node.inputs()) {
      if (is_pending(in)) {
        auto& uses = visit(in);
        links_.push_back({static_cast<int>(i), uses.last});
        uses.last = links_.size() - 1;
        ++uses.count;
      }
    }
  }
}

// The slot with the array's index, or the free slot for it.
size_t PendingGraph::slot_of(const array& a) const {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  auto mask = slots_.size() - 1;
  auto slot = (a.id() * kGolden >> 32) & mask;
  while (slots_[slot] >= 0 && nodes_[slots_[slot]].id() != a.id()) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

PendingGraph::Uses& PendingGraph::visit(const array& a) {
  auto slot = slot_of(a);
  if (slots_[slot] < 0) {
    slots_[slot] = nodes_.size();
    nodes_.push_back(a);
    uses_.emplace_back();
    if (2 * nodes_.size() > slots_.size()) {
      grow();
    }
    return uses_.back();
  }
  return uses_[slots_[slot]];
}

void PendingGraph::grow() {
  slots_.assign(2 * slots_.size(), -1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    slots_[slot_of(nodes_[i])] = i;
  }
}

const PendingGraph::Uses* PendingGraph::uses_of(const array& a) const {
  auto place = slots_[slot_of(a)];
  return place < 0 ? nullptr : &uses_[place];
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
