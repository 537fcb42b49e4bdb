// Copyright © 2026 mlx_norms contributors
//
// The planners of a pass: each adds to a graph what it gains by, and counts it.

#pragma once

#include <unordered_set>

#include "csrc/linear/spec.h"
#include "csrc/patching/match.h"

namespace mlx_norms {

// prospects.cpp: whether there may be anything around norms, by the nodes next
// to them, and whether it may matter what is held elsewhere.
struct Sides { // of a norm
  bool before = true;
  bool parts = true; // before it, computed for it alone
  bool after = true;
  bool any() const {
    return before || after;
  }
};
struct Prospects {
  bool any = false;
  bool holders = false;
  bool ropes = false;       // of norms
  bool beside = false;      // norms that may stand side by side
  std::vector<Sides> sides; // of the graph's norms
};
Prospects prospects_of(const Graph& graph);

// around.cpp: norms that compute what stands around them, by the table of
// rules, and norms that are written in operations, first of all those with a
// rope after them; unless it `joins` none, also norms side by side.
void plan_around(Graph& graph, const Prospects& prospects, bool joins = true);

// ropes.cpp: one node in the place of a norm of heads, a transpose and a rope,
// or of a layer's q and k of two each, if nothing else takes the norms, which
// are returned.
bool may_be_rope_of_norm(const array& rope);
Arrays plan_ropes(Graph& graph, const CallOf& call_of);

// side_by_side.cpp: the nodes from which, after all that is planned, `x` is
// computed by one operation after another, none of them a norm, whose other
// inputs are given; the nearest first. Of two norms from one source neither
// needs the other.
constexpr size_t kMostSources = 6;
using Sources = mx::SmallVector<std::uintptr_t, kMostSources>;
Sources sources_of(const Graph& graph, const array& x);
bool share_source(const Sources& a, const Sources& b);

// One launch of up to four norms that are known to need none of each other, as
// of a model's queries and keys or latents, with the numbers that multiply
// their results; not those left out, which are part of others.
bool may_stand_side_by_side(const Graph& graph);
void plan_side_by_side(
    Graph& graph,
    const std::unordered_set<std::uintptr_t>& left_out);

// projections.cpp: norms with the matmuls that use them, if nothing else does
// and one launch can compute them. Returns their number.
int plan_projections(Graph& graph);

// products.cpp: quantized products of few rows by our kernel, where that is
// known to be faster, each with the residual that is added to it if nothing
// else takes the product. Returns their number.
int plan_products(Graph& graph);

// How the weight of a pending QuantizedMatmul is stored, if our kernels may
// read it. Its arrays are the node's inputs after x.
std::optional<Projection> stored_form(const array& product);

// Whether our product is known to be faster than MLX's: by tiles, as
// bench/quantized.py measured it on an H200.
bool is_faster(
    const Projection& form,
    const array& weight,
    int64_t rows,
    mx::Stream stream);

// Whether a weight has been evaluated and can be read in place.
bool is_readable(const array& a);

// Takes them wherever the kernel does, for tests.
void set_products_anywhere(bool anywhere);
bool takes_products_anywhere();

} // namespace mlx_norms
