// Copyright (c) 2026 mlx_norms contributors
//
// The row is read once and stays in registers, V fours per thread. A longer row
// is read for each pass, tile by tile.

#include "kernels/ladders/layer_norm/fours.h"

constant bool rung_looped [[function_constant]]; // several tiles per row

template <int V>
struct Tile {
  float v[4 * V];

  // Loads fours that start at element `first`, `step` elements apart.
  void read_from(device const float* row, int first, int step, int length)
      thread {
    for (int k = 0; k < V; ++k) {
      int i = first + k * step;
      if (i < length) {
        read_four<kPacked>(row, i, length, v + 4 * k);
      } else {
        put(v + 4 * k, float4(0.0f));
      }
    }
  }
};

inline bool next_tile(int tile, int length) {
  return tile == 0 || (rung_looped && tile < length);
}

template <int V>
[[kernel, max_total_threads_per_threadgroup(1024)]] void layer_norm_regtiled(
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
  Tile<V> held;

  float sum = 0.0f;
  for (int tile = 0; next_tile(tile, length); tile += V * step) {
    held.read_from(from, tile + first, step, length);
    for (int k = 0; k < V; ++k) {
      sum += sum_of_four(held.v + 4 * k);
    }
  }
  float mean = simds_sum(sum, simd, lane, simds, partial) / float(length);
  float squares = 0.0f;
  for (int tile = 0; next_tile(tile, length); tile += V * step) {
    if (rung_looped) {
      held.read_from(from, tile + first, step, length);
    }
    for (int k = 0; k < V; ++k) {
      int i = tile + first + k * step;
      if (i < length) {
        squares += squares_of_four(held.v + 4 * k, mean, i, length);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // partial is written again
  squares = simds_sum(squares, simd, lane, simds, partial);
  float rstd = precise::rsqrt(squares / float(length) + eps);
  for (int tile = 0; next_tile(tile, length); tile += V * step) {
    if (rung_looped) {
      held.read_from(from, tile + first, step, length);
    }
    for (int k = 0; k < V; ++k) {
      for (int j = 0; j < 4; ++j) {
        held.v[4 * k + j] = (held.v[4 * k + j] - mean) * rstd;
      }
      int i = tile + first + k * step;
      if (i < length) {
        write_scaled<kPacked>(
            to,
            rung_has_weight ? weight : x,
            rung_has_bias ? bias : x,
            i,
            length,
            held.v + 4 * k);
      }
    }
  }
}

#define INSTANTIATE_REGTILED(V)                                  \
  template [[host_name("layer_norm_regtiled_4_" #V)]] [[kernel]] \
  decltype(layer_norm_regtiled<V>) layer_norm_regtiled<V>;

INSTANTIATE_REGTILED(1)
INSTANTIATE_REGTILED(2)
INSTANTIATE_REGTILED(4)
