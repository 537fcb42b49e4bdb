// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/patching/pending_graph.h"

namespace mlx_norms {

// Fuses the graph's norms of this package with the matmuls that use them, if
// nothing else does and one launch can compute them. In place: whoever holds a
// matmul's output, a sum or a gated pair holds the fused one. Returns the
// number of fused norms.
int fuse_projections(PendingGraph& graph);

} // namespace mlx_norms
