// Copyright (c) 2026 mlx_norms contributors
//
// The sum of which a norm is taken.

#pragma once

#include "kernels/common/row_threads.h"

constant bool clamp_sum [[function_constant]]; // to float16's range

// Values beyond float16's range saturate, inf too; NaN stays NaN.
inline float clamp_half(float v) {
  float below = v > 65504.0f ? 65504.0f : v;
  return below < -65504.0f ? -65504.0f : below;
}

// Adds the residual to the elements v of x, and rounds.
template <int N>
inline void
add_residual(thread const float* residual, int sum_type, thread float* v) {
  for (int j = 0; j < N; ++j) {
    float s = v[j] + residual[j];
    v[j] = clamp_sum ? clamp_half(s) : s;
  }
  round_vector<N>(sum_type, v);
}
