// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/pending_graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "csrc/group_norm/group_norm.h"
#include "csrc/norm/channels/channel_norm.h"
#include "csrc/rope/norm_rope.h"

namespace mlx_norms {

namespace {

constexpr size_t kAhead = 2; // nodes until one whose inputs are asked for

size_t hash_of(std::uintptr_t address) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  return address * kGolden >> 32;
}

enum class Kind { Other, Norm, ChannelNorm, Product, Power, Rope };

// The kinds of primitives, each of whose types is asked for its name only once.
class Kinds {
 public:
  Kind of(const mx::Primitive& primitive) {
    auto* type = &typeid(primitive);
    auto& entry =
        entries_[hash_of(reinterpret_cast<std::uintptr_t>(type)) % kEntries];
    if (entry.type != type) {
      entry = {type, kind_of(primitive, *type)};
    }
    return entry.kind;
  }

 private:
  static Kind kind_of(
      const mx::Primitive& primitive,
      const std::type_info& type) {
    if (type == typeid(Node<Norm>)) {
      return Kind::Norm;
    }
    if (type == typeid(Node<GroupNorm>) || type == typeid(Node<ChannelNorm>)) {
      return Kind::ChannelNorm;
    }
    std::string_view name = primitive.name();
    if (type == typeid(Node<NormRope>) || name == "RoPE") {
      return Kind::Rope;
    }
    if (name == "QuantizedMatmul") {
      return Kind::Product;
    }
    bool power = name == "Sqrt" || name == "Rsqrt" || name == "Power";
    return power ? Kind::Power : Kind::Other;
  }

  struct Entry {
    const std::type_info* type = nullptr;
    Kind kind = Kind::Other;
  };
  static constexpr size_t kEntries = 64;
  std::array<Entry, kEntries> entries_;
};

// MLX does not tell who holds an array.
long holders_of(const array& a);
template <auto kDescriptor>
struct Descriptor {
  friend long holders_of(const array& a) {
    return (a.*kDescriptor).use_count();
  }
};
// Access is not checked for the arguments of an explicit instantiation.
template struct Descriptor<&array::array_desc_>;

// Asks for memory that is read soon: a graph is larger than a core's cache, and
// waiting for it takes most of a pass's time.
void prefetch(const void* address) {
  __builtin_prefetch(address);
}

void prefetch_inputs(const array& node) {
  for (const auto& in : node.inputs()) {
    prefetch(&in.primitive_ptr()); // beside which its status is
    prefetch(&in.inputs());
  }
}

} // namespace

PendingGraph::PendingGraph(
    const Arrays& roots,
    size_t nodes,
    const Arrays& boundary)
    : slots_(std::bit_ceil(4 * nodes), -1) {
  nodes_.reserve(nodes);
  uses_.reserve(2 * nodes);
  for (const auto& a : boundary) {
    visit(a).boundary = true;
  }
  for (const auto& root : roots) {
    if (is_pending(root)) {
      visit(root).root = true;
    }
  }
  Kinds kinds;
  // Goes through the nodes found so far: no recursion, however deep the graph.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (i + 2 * kAhead < nodes_.size()) {
      prefetch(nodes_[i + 2 * kAhead].held->inputs().data());
    }
    if (i + kAhead < nodes_.size()) {
      prefetch_inputs(*nodes_[i + kAhead].held);
    }
    if (nodes_[i].boundary) {
      continue;
    }
    const auto& node = *nodes_[i].held;
    switch (kinds.of(node.primitive())) {
      case Kind::Norm:
        norms_.push_back(&node);
        break;
      case Kind::ChannelNorm:
        channel_norms_.push_back(&node);
        break;
      case Kind::Product:
        products_.push_back(&node);
        break;
      case Kind::Power:
        powers_.push_back(&node);
        break;
      case Kind::Rope:
        ropes_.push_back(&node);
        break;
      case Kind::Other:
        break;
    }
    for (const auto& in : node.inputs()) {
      if (is_pending(in)) {
        auto& used = visit(in);
        uses_.push_back({static_cast<int>(i), used.last_use});
        used.last_use = uses_.size() - 1;
      }
    }
  }
}

// The slot with the array's index, or the free slot for it.
size_t PendingGraph::slot_of(std::uintptr_t id) const {
  auto mask = slots_.size() - 1;
  auto slot = hash_of(id) & mask;
  while (slots_[slot] >= 0 && nodes_[slots_[slot]].id != id) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

PendingGraph::Node& PendingGraph::visit(const array& a) {
  auto& place = slots_[slot_of(a.id())];
  if (place >= 0) {
    return nodes_[place];
  }
  place = nodes_.size();
  nodes_.push_back({a.id(), &a});
  prefetch(a.primitive_ptr().get());
  if (2 * nodes_.size() > slots_.size()) {
    grow();
  }
  return nodes_.back();
}

void PendingGraph::grow() {
  slots_.assign(2 * slots_.size(), -1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    slots_[slot_of(nodes_[i].id)] = i;
  }
}

const PendingGraph::Node* PendingGraph::find(const array& a) const {
  auto place = slots_[slot_of(a.id())];
  return place < 0 ? nullptr : &nodes_[place];
}

const array* PendingGraph::only_taker(const array& a) const {
  auto* node = find(a);
  if (!node || node->last_use < 0 || node->root) {
    return nullptr;
  }
  auto& use = uses_[node->last_use];
  return use.previous < 0 ? nodes_[use.taker].held : nullptr;
}

bool PendingGraph::is_root(const array& a) const {
  auto* node = find(a);
  return node && node->root;
}

bool PendingGraph::is_kept(const array& a) const {
  auto* node = find(a);
  return node && (node->root || node->shared);
}

// Calls visit(sibling) for the outputs of the node's operation that nothing in
// the graph takes, of the first that something does.
template <typename F>
void PendingGraph::for_unseen_siblings(const array& node, F visit) const {
  const auto& siblings = node.siblings();
  auto before =
      siblings.begin() + (siblings.empty() ? 0 : node.sibling_position());
  auto is_seen = [this](const array& a) { return find(a) != nullptr; };
  if (std::any_of(siblings.begin(), before, is_seen)) {
    return;
  }
  for (const auto& sibling : siblings) {
    if (!is_seen(sibling)) {
      visit(sibling);
    }
  }
}

void PendingGraph::note_holders() {
  // Who takes a node holds it, as do its siblings.
  std::vector<size_t> known(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto& node = nodes_[i];
    known[i] += node.held->siblings().size();
    for (int use = node.last_use; use >= 0; use = uses_[use].previous) {
      ++known[i];
    }
    for_unseen_siblings(*node.held, [&](const array& sibling) {
      for (const auto& in : sibling.inputs()) {
        if (auto* taken = find(in)) {
          ++known[taken - nodes_.data()];
        }
      }
    });
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].shared =
        static_cast<size_t>(holders_of(*nodes_[i].held)) > known[i];
  }
}

Arrays PendingGraph::held() const {
  Arrays found;
  for (const auto& node : nodes_) {
    // A derivative knows its primals, which MLX copies, by their node.
    bool is_primal = is_pending(*node.held, "Copy");
    if (is_primal || (node.shared && !node.root)) {
      found.push_back(*node.held);
    }
  }
  return found;
}

bool PendingGraph::is_inner(const array& a) const {
  auto* node = find(a);
  return node && !node->boundary;
}

bool PendingGraph::is_boundary(const array& a) const {
  auto* node = find(a);
  return node && node->boundary;
}

void PendingGraph::set_inputs(array& node, Arrays inputs) {
  replaced_.push_back(std::exchange(node.inputs(), std::move(inputs)));
}

} // namespace mlx_norms
