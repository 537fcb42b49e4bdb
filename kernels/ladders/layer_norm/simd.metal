// Copyright (c) 2026 mlx_norms contributors
//
// A SIMD-group adds up its lanes in registers (kernels/common/simds_sum.h).
// Only the SIMD-groups' totals pass through threadgroup memory.

#include "kernels/ladders/layer_norm/ladder.h"

[[kernel, max_total_threads_per_threadgroup(1024)]] void layer_norm_simd_4(
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

  float sum = 0.0f;
  for (int i = int(index); i < length; i += int(threads)) {
    sum += from[i];
  }
  float mean = simds_sum(sum, simd, lane, simds, partial) / float(length);
  float squares = 0.0f;
  for (int i = int(index); i < length; i += int(threads)) {
    float d = from[i] - mean;
    squares += d * d;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // partial is written again
  squares = simds_sum(squares, simd, lane, simds, partial);
  float rstd = rsqrt(squares / float(length) + eps);
  for (int i = int(index); i < length; i += int(threads)) {
    to[i] = scaled(
        (from[i] - mean) * rstd,
        rung_has_weight ? weight : x,
        rung_has_bias ? bias : x,
        i);
  }
}
