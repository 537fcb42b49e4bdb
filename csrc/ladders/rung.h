// Copyright © 2026 mlx_norms contributors
//
// A ladder: one op in better and better kernels (kernels/*_ladder).

#pragma once

#include <vector>

#include "mlx/dtype.h"

namespace mlx_norms {

namespace mx = mlx::core;

struct Rung {
  const char* name;
  const char* fixes; // of the rungs before it
  std::vector<mx::Dtype> dtypes;
};

// In the ladder's order.
const std::vector<Rung>& sgemm_rungs();

} // namespace mlx_norms
