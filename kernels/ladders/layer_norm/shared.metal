// Copyright (c) 2026 mlx_norms contributors
//
// A threadgroup per row: neighbors read neighbors. Sums are trees in
// threadgroup memory, with a barrier per level.

#include "kernels/ladders/layer_norm/ladder.h"

constant constexpr int kTreeThreads = 1024;

// The sum over the threads, in each of them; their number is a power of two.
inline float
tree_sum(float v, threadgroup float* tree, uint index, uint threads) {
  tree[index] = v;
  for (uint half_of_it = threads / 2; half_of_it > 0; half_of_it /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < half_of_it) {
      tree[index] += tree[index + half_of_it];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return tree[0];
}

[[kernel, max_total_threads_per_threadgroup(1024)]] void layer_norm_shared_4(
    device const float* x [[buffer]],
    device const float* weight [[buffer, function_constant(rung_has_weight)]],
    device const float* bias [[buffer, function_constant(rung_has_bias)]],
    device float* y [[buffer]],
    constant const int& length [[buffer]],
    constant const float& eps [[buffer]],
    uint row [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  threadgroup float tree[kTreeThreads];
  device const float* from = x + long(row) * length;
  device float* to = y + long(row) * length;

  float sum = 0.0f;
  for (int i = int(index); i < length; i += int(threads)) {
    sum += from[i];
  }
  float mean = tree_sum(sum, tree, index, threads) / float(length);
  float squares = 0.0f;
  for (int i = int(index); i < length; i += int(threads)) {
    float d = from[i] - mean;
    squares += d * d;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // the tree grows again
  float variance = tree_sum(squares, tree, index, threads) / float(length);
  float rstd = rsqrt(variance + eps);
  for (int i = int(index); i < length; i += int(threads)) {
    to[i] = scaled(
        (from[i] - mean) * rstd,
        rung_has_weight ? weight : x,
        rung_has_bias ? bias : x,
        i);
  }
}
