// Copyright © 2026 mlx_norms contributors
//
// Faults in threadgroup memory and private arrays, one a kernel. REPAIRED gives the clean twin.

#include <metal_stdlib>
using namespace metal;

kernel void past_end_of_array(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float row[64];
  threadgroup float other[64];
  other[t] = 0;
  threadgroup float* p = row;
#ifdef REPAIRED
  p[t] = x[t];
#else
  p[t + 1] = x[t]; // FAULT: out-of-bounds threadgroup: row
#endif
  y[t] = x[t] + other[t];
}

// Within the array as a whole, past the end of one of its rows.
kernel void past_end_of_inner_dimension(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float tile[5][16];
#ifdef REPAIRED
  uint column = 15;
#else
  uint column = x[t] < 1e6f ? 16 : 15;
#endif
  tile[t][column] = x[t]; // FAULT: out-of-bounds threadgroup: tile
  y[t] = x[t];
}

// The length of this array is set by the launch: 64 floats.
kernel void past_end_of_argument(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  shared[t] = x[t];
#ifndef REPAIRED
  shared[threads + t] = 0; // FAULT: out-of-bounds threadgroup: shared
#endif
  y[t] = shared[t];
}

kernel void past_end_of_private_array(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& per_thread [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]]) {
  float v[4];
#ifdef REPAIRED
  for (uint k = 0; k < per_thread; k++) {
#else
  for (uint k = 0; k <= per_thread; k++) {
#endif
    v[k] = x[4 * t + k % 4]; // FAULT: out-of-bounds private: v
  }
  y[t] = v[0] + v[1] + v[2] + v[3];
}

kernel void private_array_by_data(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    device const uint* choice [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]]) {
  float v[2] = {x[t], -x[t]};
#ifdef REPAIRED
  y[t] = v[choice[t] & 1];
#else
  y[t] = v[choice[t]]; // FAULT: out-of-bounds private: v
#endif
}

// Four SIMD-groups write 4 partial sums; all 32 are added.
kernel void uninitialized_partials(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  float sum = simd_sum(x[t]);
  if (lane == 0) {
    partial[simd] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
#ifdef REPAIRED
  sum = simd_sum(lane < simds ? partial[lane] : 0);
#else
  sum = simd_sum(partial[lane]); // FAULT: uninitialized threadgroup: partial
#endif
  y[t] = sum;
}

kernel void uninitialized_tile_tail(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float tile[64];
  if (t < n) {
    tile[t] = x[t];
  }
#ifdef REPAIRED
  else {
    tile[t] = 0;
  }
#endif
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < 64; k++) {
    sum += tile[k]; // FAULT: uninitialized threadgroup: tile
  }
  y[t] = sum;
}

kernel void reverse_without_barrier(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  threadgroup float row[128];
  row[t] = x[t]; // FAULT: threadgroup race: row
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  y[t] = row[threads - 1 - t]; // FAULT: threadgroup race: row
}

kernel void broadcast_without_barrier(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float mean;
  if (t == 0) {
    mean = x[0]; // FAULT: threadgroup race: mean
  }
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  y[t] = x[t] - mean; // FAULT: threadgroup race: mean
}

kernel void several_writers(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  threadgroup float last;
#ifdef REPAIRED
  if (t == threads - 1)
#endif
    last = x[t]; // FAULT: threadgroup race: last
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = last;
}

inline float add_simds(
    threadgroup float* partial,
    float value,
    uint lane,
    uint simd,
    uint simds) {
  value = simd_sum(value);
  if (lane == 0) {
    partial[simd] = value; // FAULT: threadgroup race: partial
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0;
  for (uint k = 0; k < simds; k++) {
    total += partial[k]; // FAULT: threadgroup race: partial
  }
  return total;
}

// The second sum overwrites partials that a slower SIMD-group still reads for the first.
kernel void two_sums_one_array(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  float mean = add_simds(partial, x[t], lane, simd, simds) / threads;
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  float d = x[t] - mean;
  y[t] = add_simds(partial, d * d, lane, simd, simds) / threads;
}

// The same over the rows of a loop: the array is reused by the next row.
kernel void reused_in_next_row(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& rows [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  for (uint row = 0; row < rows; row++) {
    float v = x[row * threads + t];
    float sum = simd_sum(v);
    if (lane == 0) {
      partial[simd] = sum; // FAULT: threadgroup race: partial
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = 0;
    for (uint k = 0; k < simds; k++) {
      sum += partial[k]; // FAULT: threadgroup race: partial
    }
#ifdef REPAIRED
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    y[row * threads + t] = v / sum;
  }
}

kernel void tree_without_barrier(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  threadgroup float tree[128];
  tree[t] = x[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = threads / 2; s > 0; s /= 2) {
    if (t < s) {
      tree[t] += tree[t + s]; // FAULT: threadgroup race: tree
    }
#ifdef REPAIRED
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  }
  if (t == 0) {
    y[0] = tree[0];
  }
}

// Lanes of one SIMD-group do not run in lockstep by right.
kernel void exchange_in_simdgroup(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float row[32];
  row[t] = x[t]; // FAULT: threadgroup race: row
#ifdef REPAIRED
  simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
  y[t] = row[t ^ 1]; // FAULT: threadgroup race: row
}

kernel void simdgroup_barrier_too_narrow(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float row[128];
  row[t] = x[t]; // FAULT: threadgroup race: row
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
#else
  simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
  y[t] = row[t ^ 32]; // FAULT: threadgroup race: row
}

kernel void barrier_mem_none(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float row[128];
  row[t] = x[t]; // FAULT: threadgroup race: row
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
#else
  threadgroup_barrier(mem_flags::mem_none);
#endif
  y[t] = row[t ^ 32]; // FAULT: threadgroup race: row
}

kernel void barrier_mem_device(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup float row[128];
  row[t] = x[t]; // FAULT: threadgroup race: row
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
#else
  threadgroup_barrier(mem_flags::mem_device);
#endif
  y[t] = row[t ^ 32]; // FAULT: threadgroup race: row
}

// The sum is read plainly while other threads still add to it.
kernel void plain_read_of_atomic(
    device const float* x [[buffer(0)]],
    device uint* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup uint count;
  threadgroup atomic_uint* counter = (threadgroup atomic_uint*)&count;
  if (t == 0) {
    count = 0;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (x[t] > 0) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); // FAULT: threadgroup race: count
  }
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  y[t] = count; // FAULT: threadgroup race: count
}
