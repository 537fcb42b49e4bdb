// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// The passes over what is about to be evaluated, in place, and in one walk
// unless they change the graph: with `projections` fuse_projections() and
// take_products(); and what stands `around` the other norms becomes part of
// them, as by fuse_graph(); an array that is held elsewhere does not. What a
// transform traces is left alone. Returns the number of norms fused with
// products.
int fuse_at_eval(const Arrays& roots, bool around, bool projections);

} // namespace mlx_norms
