// Copyright © 2026 mlx_norms contributors
//
// Barriers and SIMD-group functions in divergent flow, one fault a kernel. REPAIRED gives the
// clean twin.

#include <metal_stdlib>
using namespace metal;

kernel void barrier_in_each_branch(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float row[64];
  row[t] = x[t];
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = t < 32 ? row[t ^ 1] : -row[t ^ 1];
#else
  if (t < 32) {
    threadgroup_barrier(mem_flags::mem_threadgroup); // FAULT: barrier divergence
    y[t] = row[t ^ 1];
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup); // FAULT: barrier divergence
    y[t] = -row[t ^ 1];
  }
#endif
}

kernel void barrier_for_some(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float first;
  if (simd == 0) {
    if (t == 0) {
      first = x[0];
    }
#ifndef REPAIRED
    threadgroup_barrier(mem_flags::mem_threadgroup); // FAULT: barrier divergence
#endif
  }
  threadgroup_barrier(mem_flags::mem_threadgroup); // FAULT: barrier divergence
  y[t] = x[t] - first;
}

kernel void barrier_after_tail_guard(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint i [[thread_position_in_grid]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float row[64];
#ifndef REPAIRED
  if (i >= n) {
    return;
  }
#endif
  row[t] = i < n ? x[i] : 0;
  threadgroup_barrier(mem_flags::mem_threadgroup); // FAULT: barrier after return
  if (i < n) {
    y[i] = row[t & ~1u];
  }
}

// Threads of the first half take one turn more.
kernel void barrier_in_uneven_loop(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  threadgroup float chunk[64];
#ifdef REPAIRED
  for (uint start = 0; start < n; start += threads) {
    uint i = start + t;
#else
  for (uint i = t; i < n; i += threads) {
#endif
    chunk[t] = i < n ? x[i] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup); // FAULT: barrier after return
    if (i < n) {
      y[i] = chunk[t ^ 1];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // FAULT: barrier after return
  }
}

kernel void simd_sum_in_branch(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  float sum = 0;
#ifdef REPAIRED
  sum = simd_sum(lane < 20 ? x[t] : 0);
#else
  if (lane < 20) {
    sum = simd_sum(x[t]); // FAULT: SIMD divergence
  }
  sum = simd_broadcast_first(sum);
#endif
  y[t] = sum;
}

kernel void shuffle_from_inactive_lane(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  float v = x[t];
#ifdef REPAIRED
  float other = simd_shuffle_xor(v, 16);
  if (lane < 16) {
    v += other;
  }
#else
  if (lane < 16) {
    v += simd_shuffle_xor(v, 16); // FAULT: SIMD divergence
  }
#endif
  y[t] = v;
}

kernel void two_simd_functions_at_once(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  float v = x[t];
#ifdef REPAIRED
  float sum = simd_sum(v);
  float most = simd_max(v);
  y[t] = lane < 16 ? sum : most;
#else
  if (lane < 16) {
    y[t] = simd_sum(v); // FAULT: SIMD divergence
  } else {
    y[t] = simd_max(v); // FAULT: SIMD divergence
  }
#endif
}

// Rows of 20: the other lanes of the SIMD-group have gone.
kernel void simd_sum_in_uneven_loop(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint lane [[thread_index_in_simdgroup]]) {
  float total = 0;
#ifdef REPAIRED
  for (uint start = 0; start < n; start += 32) {
    uint i = start + lane;
    total += simd_sum(i < n ? x[i] : 0);
  }
#else
  for (uint i = lane; i < n; i += 32) {
    total += simd_sum(x[i]); // FAULT: SIMD divergence
  }
  total = simd_broadcast_first(total);
#endif
  y[lane] = total;
}
