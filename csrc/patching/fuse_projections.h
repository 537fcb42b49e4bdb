// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Lets norms of this package above `roots` be computed with the products that
// take them, where these are all that take them and one launch does it. In
// place: whoever holds a product, a sum or a gated pair holds the fused one.
// Returns how many norms were.
int fuse_projections(const Arrays& roots);

} // namespace mlx_norms
