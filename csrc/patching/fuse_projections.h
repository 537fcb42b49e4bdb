// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Fuses norms of this package above `roots` with the matmuls that use them, if
// nothing else does and one launch can compute them. In place: whoever holds a
// matmul's output, a sum or a gated pair holds the fused one. Then
// take_products(). Returns the number of fused norms.
int fuse_projections(const Arrays& roots);

} // namespace mlx_norms
