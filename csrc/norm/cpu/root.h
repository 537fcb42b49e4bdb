// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/cpu_kernels.h"

namespace {

using mlx_norms::cpu::Root;

// The factor of a row whose squares have this mean or, for l2, sum.
inline float inverse_root(Root root, float square) {
  if (!root.eps_bounds) {
    return 1.0f / __builtin_sqrtf(square + root.eps);
  }
  float v = __builtin_sqrtf(square);
  return 1.0f / (v < root.eps ? root.eps : v);
}

// Whether the factor is that of eps alone, so that it has no gradient.
inline bool is_constant(Root root, float factor) {
  return root.eps_bounds && factor >= 1.0f / root.eps;
}

} // namespace
