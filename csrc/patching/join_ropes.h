// Copyright © 2026 mlx_norms contributors
//
// MLX's ropes of queries and keys in one launch, where a pass over a decoding
// step runs anyway.

#pragma once

#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// Plans to compute pairs of ropes of few tokens in one launch each, if they
// rotate by the same angles and are known not to need each other.
void join_ropes(RewrittenGraph& graph);

} // namespace mlx_norms
