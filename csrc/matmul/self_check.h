// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Whether gemv, or else the blocked kernel, can be used for this dtype (see
// common/self_check.h).
bool agrees(mx::Dtype dtype, bool gemv, mx::Stream stream);

} // namespace mlx_norms
