// Copyright (c) 2026 mlx_norms contributors
//
// As simd, with four elements per load: the same bytes in a quarter of the
// loads.

#include "kernels/ladders/layer_norm/fours.h"

[[kernel, max_total_threads_per_threadgroup(1024)]] void
layer_norm_vectorized_4(
    device const float* x [[buffer]],
    device const float* weight [[buffer, function_constant(rung_has_weight)]],
    device const float* bias [[buffer, function_constant(rung_has_bias)]],
    device float* y [[buffer]],
    constant const int& length [[buffer]],
    constant const float& eps [[buffer]],
    uint row [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float4 partial[kSimdSize];
  device const float* from = x + long(row) * length;
  device float* to = y + long(row) * length;
  int first = 4 * int(index);
  int step = 4 * int(threads);
  float v[4];

  float sum = 0.0f;
  for (int i = first; i < length; i += step) {
    read_four<kEach>(from, i, length, v);
    sum += sum_of_four(v);
  }
  float mean = simds_sum(sum, simd, lane, simds, partial) / float(length);
  float squares = 0.0f;
  for (int i = first; i < length; i += step) {
    read_four<kEach>(from, i, length, v);
    squares += squares_of_four(v, mean, i, length);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // partial is written again
  squares = simds_sum(squares, simd, lane, simds, partial);
  float rstd = rsqrt(squares / float(length) + eps);
  for (int i = first; i < length; i += step) {
    read_four<kEach>(from, i, length, v);
    for (int j = 0; j < 4; ++j) {
      v[j] = (v[j] - mean) * rstd;
    }
    write_scaled<kEach>(
        to,
        rung_has_weight ? weight : x,
        rung_has_bias ? bias : x,
        i,
        length,
        v);
  }
}
