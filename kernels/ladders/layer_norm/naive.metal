// Copyright (c) 2026 mlx_norms contributors
//
// A thread per row: neighbors read addresses a row apart, and one core has a
// thousand rows.

#include "kernels/ladders/layer_norm/thread_a_row.h"

[[kernel, max_total_threads_per_threadgroup(1024)]] void layer_norm_naive_4(
    device const float* x [[buffer(0)]],
    device const float* weight
    [[buffer(1), function_constant(rung_has_weight)]],
    device const float* bias [[buffer(2), function_constant(rung_has_bias)]],
    device float* y [[buffer(3)]],
    constant const int& rows [[buffer(4)]],
    constant const int& length [[buffer(5)]],
    constant const float& eps [[buffer(6)]],
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
