// Copyright © 2026 mlx_norms contributors
//
// The passes over graphs in which norms compute what stands around them as far
// as they have options for it (rules.h): pending sums before them, scales,
// shifts, gates and activations; so do norms that are written in MLX's
// operations. A rule that keeps all bits leaves what is held elsewhere alone;
// what others take is computed as well for whoever holds it.

#pragma once

#include <functional>

#include "csrc/common/types.h"

namespace mlx_norms {

// Over what is about to be evaluated, in place, and in one walk unless it
// changes the graph: what stands `around` norms, and with `projections` norms
// with the matmuls that read them, and other quantized products. What a
// transform traces is left alone. Returns the number of norms with matmuls.
int fuse_at_eval(const Arrays& roots, bool around, bool projections);

// Arrays equal to `outputs`, from a graph of which nodes from a norm to an
// output are rebuilt. No array is changed. Nodes above `boundary()`, above
// arrays that something besides the graph holds, and above copies, as the
// primals of a derivative are, are left alone.
Arrays fuse_graph(
    const Arrays& outputs,
    const std::function<Arrays()>& boundary);

} // namespace mlx_norms
