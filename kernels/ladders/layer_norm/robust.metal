// Copyright (c) 2026 mlx_norms contributors
//
// As fused, for rows of any length: fours that are not aligned are still one
// load, and the tail is read by element. The root is precise, and a small
// variance is kept.

#include "kernels/ladders/layer_norm/fours.h"

[[kernel, max_total_threads_per_threadgroup(1024)]] void layer_norm_robust_4(
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

  float2 sums = float2(0.0f);
  for (int i = first; i < length; i += step) {
    read_four<kPacked>(from, i, length, v);
    for (int j = 0; j < 4; ++j) {
      sums += float2(v[j], v[j] * v[j]);
    }
  }
  sums = simds_sum(sums, simd, lane, simds, partial) / float(length);
  float mean = sums.x;
  float variance = sums.y - mean * mean;
  variance = variance < 0.0f ? 0.0f : variance;
  float rstd = precise::rsqrt(variance + eps);
  for (int i = first; i < length; i += step) {
    read_four<kPacked>(from, i, length, v);
    for (int j = 0; j < 4; ++j) {
      v[j] = (v[j] - mean) * rstd;
    }
    write_scaled<kPacked>(
        to,
        rung_has_weight ? weight : x,
        rung_has_bias ? bias : x,
        i,
        length,
        v);
  }
}
