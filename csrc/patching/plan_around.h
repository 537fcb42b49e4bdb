// Copyright © 2026 mlx_norms contributors
//
// The matcher of all graph passes: norms that compute what stands around them
// as far as they have options for it, as pending sums before them, scales,
// shifts, gates and activations; and norms that are written in operations.

#pragma once

#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// Whether there may be anything to plan, by the nodes next to norms and by
// those that norms which are written in operations have.
bool may_plan_around(const PendingGraph& graph);

// Adds the rewrites of all norms that gain, and counts them; unless it `joins`
// none, also of norms side by side.
void plan_around(RewrittenGraph& graph, bool joins = true);

} // namespace mlx_norms
