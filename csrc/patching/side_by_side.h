// Copyright © 2026 mlx_norms contributors
//
// Norms that stand side by side in a graph, as of a model's queries and keys or
// latents: one launch computes up to four.

#pragma once

#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// Whether a graph has such norms.
bool may_stand_side_by_side(const PendingGraph& graph);

// Plans to compute those in one launch that are known to need none of each
// other, with the numbers that multiply their results. Changes no bits. Not
// those of these arrays, which are part of other norms by now.
void join_side_by_side(
    RewrittenGraph& graph,
    const std::unordered_set<std::uintptr_t>& left_out);

} // namespace mlx_norms
