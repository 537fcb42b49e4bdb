// Copyright (c) 2026 mlx_norms contributors
//
// Mean and variance in one pass, right for any mean, merged by shuffles. In
// float16 it moves half of the bytes.

#include "kernels/ladders/layer_norm/fours.h"
#include "kernels/ladders/layer_norm/moments.h"

template <typename T>
[[kernel, max_total_threads_per_threadgroup(1024)]] void layer_norm_welford(
    device const T* x [[buffer]],
    device const T* weight [[buffer, function_constant(rung_has_weight)]],
    device const T* bias [[buffer, function_constant(rung_has_bias)]],
    device T* y [[buffer]],
    constant const int& length [[buffer]],
    constant const float& eps [[buffer]],
    uint row [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float4 partial[kSimdSize];
  device const T* from = x + long(row) * length;
  device T* to = y + long(row) * length;
  int first = 4 * int(index);
  int step = 4 * int(threads);
  float v[4];

  Moments m = Moments{0.0f, 0.0f, 0.0f, 0.0f};
  for (int i = first; i < length; i += step) {
    read_four<kPacked>(from, i, length, v);
    for (int j = 0; j < 4; ++j) {
      if (rung_aligned || i + j < length) {
        m.add(v[j]);
      }
    }
  }
  m = group_merged(m, simd, lane, simds, partial);
  float rstd = precise::rsqrt(m.squares / float(length) + eps);
  for (int i = first; i < length; i += step) {
    read_four<kPacked>(from, i, length, v);
    for (int j = 0; j < 4; ++j) {
      v[j] = (v[j] - m.base - m.mean) * rstd;
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

#define INSTANTIATE_WELFORD(size, T)                             \
  template [[host_name("layer_norm_welford_" #size)]] [[kernel]] \
  decltype(layer_norm_welford<T>) layer_norm_welford<T>;

INSTANTIATE_WELFORD(2, half)
INSTANTIATE_WELFORD(4, float)
