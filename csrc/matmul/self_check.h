// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Whether products of this dtype can be those of gemv, or of the blocked kernel
// (see common/self_check.h).
bool agrees(mx::Dtype dtype, bool gemv, mx::Stream stream);

} // namespace mlx_norms
