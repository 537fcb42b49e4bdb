// Copyright © 2026 mlx_norms contributors
//
// A ladder is one op in better and better kernels, for study: each rung
// improves what can be measured of the one before it. These kernels are called
// by name, to be studied: they have no CPU version, and on Metal no check
// before their first use (self_check.h), since no other op could replace them.

#pragma once

#include <string>
#include <vector>

#include "mlx/mlx.h"

namespace mlx_norms {

namespace mx = mlx::core;

struct Rung {
  const char* name;
  const char* fixes; // of the rung before it
  std::vector<mx::Dtype> dtypes;

  bool takes(mx::Dtype dtype) const;
};

// From naive to ours, which is the op itself.
const std::vector<Rung>& layer_norm_rungs();

// From naive to tile_simdgroup.
const std::vector<Rung>& sgemm_rungs();

// Throws std::invalid_argument, in the name of the op, if there is no such
// rung.
const Rung& find_rung(
    const char* op,
    const std::vector<Rung>& rungs,
    const std::string& name);

// Part of a message.
std::string text(const std::vector<mx::Dtype>& dtypes);

} // namespace mlx_norms
