// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Arrays equal to `outputs` by a graph in which norms compute the pending sums
// that they take. No array is changed: what leads from a fused norm to an
// output is built anew. What lies above `boundary` is left alone.
Arrays fuse_graph(const Arrays& outputs, const Arrays& boundary);

} // namespace mlx_norms
