// Copyright © 2026 mlx_norms contributors
//
// The pending nodes above some arrays, the nodes that take each, and the nodes
// that are planned to take the places of others.

#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/patching/pending.h"

namespace mlx_norms {

// What a pass may start at; a root or power is taken by every norm that is
// written in operations. Norms and ropes are those of MLX, too.
enum class Kind : uint8_t {
  Other,
  Norm,
  GroupNorm,
  Root,
  Rope,
  Product // quantized
};
constexpr size_t kKinds = 6;

// What is known of a primitive by its type.
struct Traits {
  Kind kind = Kind::Other;
  // Whether a rule may have it as what is before a norm, or after it; or it
  // moves axes, so that the one next to it may be that.
  bool before = false;
  bool after = false;
  bool reshapes = false;
};

// A node that takes the place of others, and the arrays that its outputs
// replace.
struct Rewrite {
  Arrays old;
  std::shared_ptr<mx::Primitive> node;
  Arrays inputs; // of the graph as it was
};

// What a rule asks for: those that keep all bits leave what is held elsewhere.
enum class Ask { Takers, Holders };

// Nodes are the arrays by which the roots or other nodes' inputs hold them: a
// pass looks at every node of every step, and a copy counts references. So the
// roots must outlive the graph.
class Graph {
 public:
  // `nodes` is about how many there may be. What is above the boundary is not
  // looked at, nor are its arrays' own operations.
  Graph(const Arrays& roots, size_t nodes, const Arrays& boundary = {});
  Graph(const Graph&) = delete;
  ~Graph();

  const Arrays& roots() const {
    return roots_;
  }
  size_t size() const {
    return nodes_.size();
  }

  // Those nearest to the roots first.
  const std::vector<const array*>& all(Kind kind) const {
    return by_kind_[static_cast<size_t>(kind)];
  }

  // Calls visit(node) for the nodes that take `a`, once per use; the furthest
  // from the roots first.
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

  // Whether it stays what it is: a root, or held by more than the graph.
  bool is_kept(const array& a, Ask ask) const;

  // Finds what is held by more than the graph, before anything is copied.
  void note_holders();

  // That, without the roots, and all copies, which may be the primals of a
  // derivative.
  Arrays held() const;

  // Of a node that was looked at; else none.
  Traits traits_of(const array& a) const {
    auto* node = find(a);
    return node ? node->traits : Traits{};
  }

  // Whether it is a node that was looked at.
  bool is_inner(const array& a) const;
  bool is_boundary(const array& a) const;

  // What is planned, of which `a` is an output; null: nothing.
  const Rewrite* rewrite_of(const array& a) const {
    auto* node = find(a);
    return node && node->rewrite >= 0 ? &rewrites_[node->rewrite] : nullptr;
  }

  // Whether a planned node takes it.
  bool is_taken(const array& a) const {
    auto* node = find(a);
    return node && node->taken;
  }

  // Whether it is asked for, or anything takes it after what is planned.
  bool is_used(const array& a) const {
    return is_root(a) || is_taken(a) || !all_takers(a, [this](auto& taker) {
             return rewrite_of(taker) != nullptr;
           });
  }

  // An output of the only operation that takes `a`, once, if nothing is planned
  // for it; null: others do, too, as what is planned, or `a` is kept.
  const array* sole_taker(const array& a, Ask ask) const;

  // Whether `a`, for which nothing is planned, has a sole taker, of which it
  // can become a part.
  bool is_part(const array& a, Ask ask) const {
    return sole_taker(a, ask) && !rewrite_of(a);
  }

  // Whether an operand is computed from `a`, after all that is planned.
  enum class Relation {
    Independent,
    Dependent,
    Unknown, // by many operations
    Traced   // independent, and from a tracer, as `a` is not
  };
  Relation relation(const array& operand, const array& a) const;
  bool is_independent(const array& operand, const array& a) const {
    auto found = relation(operand, a);
    return found == Relation::Independent || found == Relation::Traced;
  }

  // Returns whether it is planned: an array is replaced once.
  bool add(Rewrite rewrite);

  bool has_plans() const {
    return !rewrites_.empty();
  }

  // The inputs of a node after all that is planned; none above the boundary.
  const Arrays& inputs_of(const array& a) const;

  // Makes the planned nodes those of the arrays that they replace, for
  // all who hold these. Returns whether anything was planned. It is the last
  // that is done with a graph.
  bool apply();

 private:
  struct Node {
    std::uintptr_t id;
    const array* held;
    int last_use = -1; // in uses_
    int uses = 0;
    int holders = 0; // of the graph
    bool root = false;
    bool boundary = false;
    bool shared = false; // held by more than the graph
    bool taken = false;  // by what is planned
    Traits traits = {};
    int rewrite = -1;     // in rewrites_
    mutable int seen = 0; // in this question, as below
    mutable int above = 0;
  };
  struct Use {
    int taker;    // in nodes_
    int previous; // in uses_
  };

  Node& visit(const array& a);
  const Node* find(const array& a) const;
  Node* find(const array& a) {
    return const_cast<Node*>(std::as_const(*this).find(a));
  }
  template <typename F>
  void for_unseen_siblings(const array& node, F visit) const;
  size_t slot_of(std::uintptr_t id) const;
  void grow();

  const Arrays& inputs_of(const array& a, const Node* node) const;
  void mark_above(const array& a, size_t most) const;

  // The memory of a thread's latest graph, as each step has one.
  struct Memory {
    std::vector<Node> nodes; // those nearest to the roots first
    std::vector<Use> uses;
    std::array<std::vector<const array*>, kKinds> by_kind;
    // A hash table of indices into nodes, with open addressing. Its size is a
    // power of two, and at most half is used.
    std::vector<int> slots;
    std::vector<Rewrite> rewrites;
    std::vector<Arrays> replaced; // inputs
  };
  static Memory& latest_memory();

  const Arrays& roots_;
  Memory memory_;
  std::vector<Node>& nodes_ = memory_.nodes;
  std::vector<Use>& uses_ = memory_.uses;
  std::array<std::vector<const array*>, kKinds>& by_kind_ = memory_.by_kind;
  std::vector<int>& slots_ = memory_.slots;
  std::vector<Rewrite>& rewrites_ = memory_.rewrites;
  mutable int question_ = 0; // of relation(), so far
};

// The roots, of what is planned and what it needs. No array is changed
// (rebuild.cpp).
Arrays rebuilt(const Graph& graph);

} // namespace mlx_norms
