// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Arrays equal to `outputs`, from a graph in which norms compute what stands
// around them as far as they have options for it: pending sums before them,
// scales, shifts, gates and activations; so do norms that are written in MLX's
// operations. No array is changed: nodes from a norm to an
// output are rebuilt. Nodes above `boundary()`, above arrays that something
// besides the graph holds, and above copies, as the primals of a derivative
// are, are left alone.
Arrays fuse_graph(
    const Arrays& outputs,
    const std::function<Arrays()>& boundary);

} // namespace mlx_norms
