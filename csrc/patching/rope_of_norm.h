// Copyright © 2026 mlx_norms contributors
//
// Ropes of norms of heads: one node in the place of a norm, a transpose and a
// rope, or of a layer's q and k of two each.

#pragma once

#include "csrc/patching/norm_before.h"

namespace mlx_norms {

// Whether it is a rope of a norm of this package, whatever else takes the norm.
bool is_rope_of_norm(const array& rope);

// Adds the rewrites of ropes of norms that nothing else takes, and counts them.
// Returns the norms that are computed so.
Arrays plan_ropes(RewrittenGraph& graph, const CallOf& call_of);

} // namespace mlx_norms
