// Copyright (c) 2026 mlx_norms contributors
//
// The first step of a norm's result in all kernels, before the weight.

#pragma once

#include "kernels/norm/statistics.h"

constant bool round_early [[function_constant]]; // before the weight

// Normalizes the elements v of a row, to be rounded early to this type.
template <int N>
inline void normalize(Statistics stats, int type, thread float* v) {
  for (int j = 0; j < N; ++j) {
    v[j] = stats.normalize(v[j]);
  }
  round_step<N>(round_early, type, v);
}
