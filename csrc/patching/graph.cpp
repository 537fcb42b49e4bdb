// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "csrc/common/outputs.h"
#include "csrc/norm/norm.h"
#include "csrc/rope/norm_rope.h"

namespace mlx_norms {

namespace {

constexpr size_t kAhead = 2; // nodes until one whose inputs are asked for

size_t hash_of(std::uintptr_t address) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  return address * kGolden >> 32;
}

// The traits of primitives, each of whose types is asked for its name once.
class TraitsByType {
 public:
  Traits of(const mx::Primitive& primitive) {
    const auto& known = known_by(typeid(primitive), primitive);
    if (!known.is_ours) {
      return known.traits;
    }
    const auto& op = static_cast<const Node&>(primitive).op();
    auto traits = known_by(typeid(op), primitive).traits;
    if (traits.kind == Kind::Norm &&
        static_cast<const Norm&>(op).spec.grouped) {
      traits.kind = Kind::GroupNorm;
    }
    return traits;
  }

 private:
  struct Known {
    bool is_ours;
    Traits traits;
  };

  // Of the type of a primitive, or of our op.
  const Known& known_by(
      const std::type_info& type,
      const mx::Primitive& primitive) {
    auto found = known_.find(&type);
    if (found == known_.end()) {
      Known known{type == typeid(Node), traits_of(primitive, type)};
      found = known_.emplace(&type, known).first;
    }
    return found->second;
  }

  static Traits traits_of(
      const mx::Primitive& primitive,
      const std::type_info& type) {
    std::string_view name = primitive.name();
    auto is_one_of = [name](std::initializer_list<std::string_view> names) {
      return std::ranges::find(names, name) != names.end();
    };
    bool both = is_one_of({"Add", "Multiply", "AsType"}) ||
        type == typeid(mx::Compiled);
    return {
        type == typeid(Norm) || is_mlx_norm(name)        ? Kind::Norm
            : type == typeid(NormRope) || name == "RoPE" ? Kind::Rope
            : name == "QuantizedMatmul"                  ? Kind::Product
            : is_one_of({"Sqrt", "Rsqrt", "Power"})      ? Kind::Root
                                                         : Kind::Other,
        both,
        both || is_one_of({"Sigmoid", "Divide", "Maximum"}),
        is_reshape(name)};
  }

  std::unordered_map<const std::type_info*, Known> known_;
};

// Of this thread; its address is looked up once a graph.
[[gnu::noinline]] TraitsByType& traits_by_type() {
  thread_local TraitsByType known;
  return known;
}

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

Graph::Graph(const Arrays& roots, size_t nodes, const Arrays& boundary)
    : roots_(roots),
      memory_(std::move(latest_memory())) {
  nodes_.reserve(nodes);
  uses_.reserve(2 * nodes);
  slots_.assign(std::bit_ceil(4 * nodes), -1);
  for (const auto& a : boundary) {
    visit(a).boundary = true;
  }
  for (const auto& root : roots) {
    if (is_pending(root)) {
      visit(root).root = true;
    }
  }
  auto& known = traits_by_type();
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
    auto traits = known.of(node.primitive());
    nodes_[i].traits = traits;
    if (traits.kind != Kind::Other) {
      by_kind_[static_cast<size_t>(traits.kind)].push_back(&node);
    }
    for (const auto& in : node.inputs()) {
      if (is_pending(in)) {
        auto& used = visit(in);
        uses_.push_back({static_cast<int>(i), used.last_use});
        used.last_use = uses_.size() - 1;
        ++used.uses;
      }
    }
  }
}

Graph::Memory& Graph::latest_memory() {
  thread_local Memory memory;
  return memory;
}

Graph::~Graph() {
  constexpr size_t kMost = 1 << 14; // nodes, beyond which none is kept
  if (nodes_.capacity() > kMost) {
    return;
  }
  nodes_.clear();
  uses_.clear();
  rewrites_.clear();
  for (auto& found : by_kind_) {
    found.clear();
  }
  latest_memory() = std::move(memory_);
}

// The slot with the array's index, or the free slot for it.
size_t Graph::slot_of(std::uintptr_t id) const {
  auto mask = slots_.size() - 1;
  auto slot = hash_of(id) & mask;
  while (slots_[slot] >= 0 && nodes_[slots_[slot]].id != id) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

Graph::Node& Graph::visit(const array& a) {
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

void Graph::grow() {
  slots_.assign(2 * slots_.size(), -1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    slots_[slot_of(nodes_[i].id)] = i;
  }
}

const Graph::Node* Graph::find(const array& a) const {
  auto place = slots_[slot_of(a.id())];
  return place < 0 ? nullptr : &nodes_[place];
}

const array* Graph::only_taker(const array& a) const {
  auto* node = find(a);
  return node && node->uses == 1 && !node->root
      ? nodes_[uses_[node->last_use].taker].held
      : nullptr;
}

bool Graph::is_root(const array& a) const {
  auto* node = find(a);
  return node && node->root;
}

bool Graph::is_kept(const array& a, Ask ask) const {
  auto* node = find(a);
  return node && (node->root || (node->shared && ask == Ask::Holders));
}

// Calls visit(sibling) for the outputs of the node's operation that nothing in
// the graph takes, of the first that something does.
template <typename F>
void Graph::for_unseen_siblings(const array& node, F visit) const {
  const auto& siblings = node.siblings();
  if (siblings.empty()) {
    return;
  }
  auto before = siblings.begin() + node.sibling_position();
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

void Graph::note_holders() {
  // Who takes a node holds it, as do its siblings.
  for (auto& node : nodes_) {
    node.holders = node.uses + static_cast<int>(node.held->siblings().size());
  }
  for (const auto& node : nodes_) {
    for_unseen_siblings(*node.held, [&](const array& sibling) {
      for (const auto& in : sibling.inputs()) {
        if (auto* taken = find(in)) {
          ++taken->holders;
        }
      }
    });
  }
  for (auto& node : nodes_) {
    node.shared = holders_of(*node.held) > node.holders;
  }
}

Arrays Graph::held() const {
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

bool Graph::is_inner(const array& a) const {
  auto* node = find(a);
  return node && !node->boundary;
}

bool Graph::is_boundary(const array& a) const {
  auto* node = find(a);
  return node && node->boundary;
}

namespace {

int times_taken(const array& a, const array& taker) {
  return std::ranges::count_if(
      taker.inputs(), [&](const array& in) { return in.id() == a.id(); });
}

} // namespace

const Arrays& Graph::inputs_of(const array& a, const Node* node) const {
  static const Arrays none;
  return !node             ? a.inputs()
      : node->rewrite >= 0 ? rewrites_[node->rewrite].inputs
      : node->boundary     ? none
                           : a.inputs();
}

const Arrays& Graph::inputs_of(const array& a) const {
  return inputs_of(a, find(a));
}

const array* Graph::sole_taker(const array& a, Ask ask) const {
  if (!is_inner(a) || is_kept(a, ask) || is_taken(a)) {
    return nullptr;
  }
  const array* found = nullptr;
  bool is_sole = all_takers(a, [&](const array& taker) {
    found = found ? found : &taker;
    return node_id(taker) == node_id(*found);
  });
  is_sole = is_sole && found && times_taken(a, *found) == 1;
  return is_sole && !rewrite_of(*found) ? found : nullptr;
}

namespace {

// How far to look above an operand, as one of a model's timestep.
constexpr size_t kFar = 256;
// After so many arrays it is asked what leads to the array that may be above
// them, which cannot be computed from it; after more, further away.
constexpr std::array<std::pair<size_t, size_t>, 2> kPrunings = {
    {{4, 16}, {64, 256}}};
constexpr size_t kNearly = 64; // as many as are mostly looked at

bool is_argument_of_transform(const array& a) {
  return a.status() == array::Status::unscheduled && !a.has_primitive();
}

} // namespace

void Graph::mark_above(const array& a, size_t most) const {
  std::vector<const array*> nodes;
  nodes.reserve(kNearly);
  nodes.push_back(&a);
  for (size_t i = 0; i < nodes.size() && nodes.size() < most; ++i) {
    for (const auto& in : inputs_of(*nodes[i])) {
      auto* node = is_pending(in) ? find(in) : nullptr;
      if (node && std::exchange(node->above, question_) != question_) {
        nodes.push_back(&in);
      }
    }
  }
}

Graph::Relation Graph::relation(const array& operand, const array& a) const {
  bool traced = operand.is_tracer() || is_argument_of_transform(operand);
  if (!is_pending(operand)) { // as a weight
    return operand.id() == a.id()  ? Relation::Dependent
        : traced && !a.is_tracer() ? Relation::Traced
                                   : Relation::Independent;
  }
  ++question_;
  std::vector<const array*> nodes; // the nearest first
  nodes.reserve(kNearly);
  nodes.push_back(&operand);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (auto [after, most] : kPrunings) {
      if (i == after) {
        mark_above(a, most);
      }
    }
    if (i == kFar) {
      return Relation::Unknown;
    }
    const auto& node = *nodes[i];
    if (node.id() == a.id()) {
      return Relation::Dependent;
    }
    // An argument of vmap or compile may have lost its flag to a gradient.
    traced |= node.is_tracer() || is_argument_of_transform(node);
    auto* known = is_pending(node) ? find(node) : nullptr;
    if (!is_pending(node) || (known && known->above == question_)) {
      continue;
    }
    for (const auto& in : inputs_of(node, known)) {
      auto* next = find(in);
      if (!next || std::exchange(next->seen, question_) != question_) {
        nodes.push_back(&in);
      }
    }
  }
  return traced && !a.is_tracer() ? Relation::Traced : Relation::Independent;
}

bool Graph::add(Rewrite rewrite) {
  if (std::ranges::any_of(
          rewrite.old, [this](const array& a) { return rewrite_of(a); })) {
    return false;
  }
  for (const auto& a : rewrite.old) {
    if (auto* node = find(a)) { // else it has been made for the node
      node->rewrite = rewrites_.size();
    }
  }
  for (const auto& a : rewrite.inputs) {
    if (auto* node = find(a)) {
      node->taken = true;
    }
  }
  rewrites_.push_back(std::move(rewrite));
  return true;
}

bool Graph::apply() {
  auto& replaced = memory_.replaced; // let go of when all is in its place
  for (auto& [old, node, inputs] : rewrites_) {
    for (auto& a : old) {
      a.primitive_ptr() = node;
      replaced.push_back(std::exchange(a.inputs(), inputs));
      a.set_siblings({}, 0);
    }
    make_siblings(old);
  }
  replaced.clear();
  return has_plans();
}

} // namespace mlx_norms
