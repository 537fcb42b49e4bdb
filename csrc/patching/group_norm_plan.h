// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// Plans that a group norm of this package computes what stands after it:
// parameters of its channels, and an activation.
void plan_group_norm(RewrittenGraph& graph, const array& normalized);

} // namespace mlx_norms
