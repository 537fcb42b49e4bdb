// Copyright © 2026 mlx_norms contributors
//
// A ladder is one op in better and better kernels, for study: each rung mends
// what can be measured of the one before it.

#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "mlx/mlx.h"

namespace mlx_norms {

namespace mx = mlx::core;

struct Rung {
  const char* name;
  const char* fixes; // of the rung before it
  std::vector<mx::Dtype> dtypes;

  bool takes(mx::Dtype dtype) const {
    return std::ranges::find(dtypes, dtype) != dtypes.end();
  }
};

// Null if none is called so.
inline const Rung* find_rung(
    const std::vector<Rung>& rungs,
    std::string_view name) {
  auto found = std::ranges::find(rungs, name, &Rung::name);
  return found == rungs.end() ? nullptr : &*found;
}

// From naive to ours.
const std::vector<Rung>& layer_norm_rungs();

// From naive to tile_simdgroup.
const std::vector<Rung>& sgemm_rungs();

} // namespace mlx_norms
