// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Arrays equal to `outputs`, from a graph in which norms compute the pending
// sums that they normalize. No array is changed: nodes from a fused norm to an
// output are rebuilt. Nodes above `boundary` are left alone.
Arrays fuse_graph(const Arrays& outputs, const Arrays& boundary);

} // namespace mlx_norms
