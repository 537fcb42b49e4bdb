// Copyright (c) 2026 mlx_norms contributors
//
// As naive, in threadgroups of one SIMD-group, which run on more cores. What is
// left to improve is how a thread reads.

#include "kernels/ladders/layer_norm/thread_a_row.h"

[[kernel, max_total_threads_per_threadgroup(32)]] void layer_norm_naive_32_4(
    device const float* x [[buffer]],
    device const float* weight [[buffer, function_constant(rung_has_weight)]],
    device const float* bias [[buffer, function_constant(rung_has_bias)]],
    device float* y [[buffer]],
    constant const int& rows [[buffer]],
    constant const int& length [[buffer]],
    constant const float& eps [[buffer]],
    uint row [[thread_position_in_grid]]) {
  if (row < uint(rows)) {
    long begin = long(row) * length;
    normalize_row(
        x + begin,
        rung_has_weight ? weight : x,
        rung_has_bias ? bias : x,
        y + begin,
        length,
        eps);
  }
}
