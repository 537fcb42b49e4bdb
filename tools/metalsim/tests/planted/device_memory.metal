// Copyright © 2026 mlx_norms contributors
//
// Faults in device memory, one a kernel. REPAIRED gives the clean twin.

#include <metal_stdlib>
using namespace metal;

kernel void read_past_end(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
#ifdef REPAIRED
  y[i] = x[i] + x[min(i + 1, n - 1)];
#else
  y[i] = x[i] + x[i + 1]; // FAULT: out-of-bounds device: x
#endif
}

kernel void read_before_start(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  int k = int(i);
#ifdef REPAIRED
  y[i] = x[i] - x[max(k - 1, 0)];
#else
  y[i] = x[i] - x[k - 1]; // FAULT: out-of-bounds device: x
#endif
}

kernel void write_past_end(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = x[i];
#ifdef REPAIRED
  y[i] = v;
#else
  y[i + 1] = v; // FAULT: out-of-bounds device: y
#endif
}

// x is long enough for the threads past the end, y is not.
kernel void missing_tail_guard(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  float v = 2 * x[i];
#ifdef REPAIRED
  if (i >= n) {
    return;
  }
#endif
  y[i] = v; // FAULT: out-of-bounds device: y
}

// n = 4k + 3: the last four-wide load takes one element too many.
kernel void vector_tail(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  uint at = 4 * i;
  float sum = 0;
#ifdef REPAIRED
  if (at + 4 > n) {
    for (uint k = at; k < n; k++) {
      sum += x[k];
    }
    y[i] = sum;
    return;
  }
#endif
  float4 v = *(device const float4*)(x + at); // FAULT: out-of-bounds device: x
  for (uint k = 0; k < 4; k++) {
    sum += at + k < n ? v[k] : 0;
  }
  y[i] = sum;
}

// The weight is as long as a row; the index is of the whole matrix.
kernel void weight_by_element(
    device const float* x [[buffer(0)]],
    device const float* weight [[buffer(1)]],
    device float* y [[buffer(2)]],
    constant uint& columns [[buffer(3)]],
    uint i [[thread_position_in_grid]]) {
#ifdef REPAIRED
  y[i] = x[i] * weight[i % columns];
#else
  y[i] = x[i] * weight[i]; // FAULT: out-of-bounds device: weight
#endif
}

kernel void null_pointer(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
#ifdef REPAIRED
  device float* to = y;
#else
  device float* to = x[i] < 1e6f ? nullptr : y;
#endif
  to[i] = x[i]; // FAULT: access violation
}

kernel void misaligned_float4(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  device const float* p = x + 1 + 4 * i;
#ifdef REPAIRED
  float4 v = float4(p[0], p[1], p[2], p[3]);
#else
  float4 v = *(device const float4*)p; // FAULT: misaligned access: x
#endif
  y[i] = v.x + v.y + v.z + v.w;
}

// Rows of an odd length: every other row starts off the 16-byte grid.
kernel void misaligned_uint4_row(
    device const half* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& columns [[buffer(2)]],
    uint row [[thread_position_in_grid]]) {
  device const half* p = x + row * columns;
  float sum = 0;
#ifdef REPAIRED
  for (uint k = 0; k < 8; k++) {
    sum += float(p[k]);
  }
#else
  uint4 bits = *(device const uint4*)p; // FAULT: misaligned access: x
  for (uint k = 0; k < 4; k++) {
    half2 pair = as_type<half2>(bits[k]);
    sum += float(pair.x) + float(pair.y);
  }
#endif
  y[row] = sum;
}

kernel void misaligned_half4_write(
    device const float* x [[buffer(0)]],
    device half* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  device half* p = y + 2 + 4 * i;
#ifdef REPAIRED
  for (uint k = 0; k < 4; k++) {
    p[k] = half(x[i]);
  }
#else
  *(device half4*)p = half4(half(x[i])); // FAULT: misaligned access: y
#endif
}

kernel void tail_not_written( // FAULT: unwritten output: y
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
#ifdef REPAIRED
  for (uint i = t; i < n; i += threads) {
#else
  for (uint i = t; i - t + threads <= n; i += threads) {
#endif
    y[i] = -x[i];
  }
}

kernel void accumulate_into_uninitialized(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
#ifdef REPAIRED
  y[i] = x[i];
#else
  y[i] += x[i]; // FAULT: uninitialized device: y
#endif
}

kernel void neighbor_without_barrier(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    device float* scratch [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  scratch[t] = 3 * x[t]; // FAULT: device race: scratch
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_device);
#endif
  y[t] = scratch[threads - 1 - t]; // FAULT: device race: scratch
}

// The barrier is there, but orders threadgroup memory only.
kernel void device_exchange_wrong_flags(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    device float* scratch [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  scratch[t] = 3 * x[t]; // FAULT: device race: scratch
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_device);
#else
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  y[t] = scratch[threads - 1 - t]; // FAULT: device race: scratch
}

kernel void sum_without_atomic(
    device const float* x [[buffer(0)]],
#ifdef REPAIRED
    device atomic_float* total [[buffer(1)]],
#else
    device float* total [[buffer(1)]],
#endif
    uint i [[thread_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  float sum = simd_sum(x[i]);
  if (lane == 0) {
#ifdef REPAIRED
    atomic_fetch_add_explicit(total, sum, memory_order_relaxed);
#else
    *total += sum; // FAULT: device race: total
#endif
  }
}

// Rows one element too close: the end of one is the start of the next.
kernel void overlapping_rows(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint row [[threadgroup_position_in_grid]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
#ifdef REPAIRED
  uint stride = threads;
#else
  uint stride = threads - 1;
#endif
  y[row * stride + t] = x[row * threads + t]; // FAULT: device race: y
}

// x and y are one buffer, as after a donation.
kernel void shift_in_place(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]]) {
  float v = x[(t + 1) % threads]; // FAULT: device race: x
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_device);
#endif
  y[t] = v; // FAULT: device race: y
}

// x and y are one buffer, and Metal's compiler takes them for two: it may read before it writes.
kernel void own_element_read_again(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
  float v = 2 * x[i];
  y[i] = v;
#ifdef REPAIRED
  y[i] = v + y[i];
#else
  y[i] = v + x[i]; // FAULT: aliased read: x
#endif
}

// Likewise, of what another thread wrote. The barrier orders the two, as far as they are one.
kernel void neighbor_through_input(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    device float* z [[buffer(2)]],
    uint t [[thread_position_in_threadgroup]]) {
  y[t] = 2 * x[t];
  threadgroup_barrier(mem_flags::mem_device);
#ifdef REPAIRED
  z[t] = y[t ^ 1];
#else
  z[t] = x[t ^ 1]; // FAULT: aliased read: x
#endif
}

// A bin is cleared by a plain store while other threads add to it.
kernel void histogram_cleared_late(
    device const float* x [[buffer(0)]],
    device uint* bins [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
  if (t < 4) {
    bins[t] = 0; // FAULT: device race: bins
  }
#ifdef REPAIRED
  threadgroup_barrier(mem_flags::mem_device);
#endif
  device atomic_uint* bin = (device atomic_uint*)bins + (uint(x[t]) & 3);
  atomic_fetch_add_explicit(bin, 1, memory_order_relaxed); // FAULT: device race: bins
}

// One threadgroup reads what another wrote in the same dispatch; no barrier reaches that far.
kernel void reads_other_threadgroup(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    device float* sums [[buffer(2)]],
    uint i [[thread_position_in_grid]],
    uint t [[thread_position_in_threadgroup]],
    uint row [[threadgroup_position_in_grid]],
    uint rows [[threadgroups_per_grid]]) {
  float sum = simd_sum(x[i]);
  if (t == 0) {
    sums[row] = sum; // FAULT: device race: sums
  }
  threadgroup_barrier(mem_flags::mem_device);
#ifdef REPAIRED
  y[i] = sums[row];
#else
  y[i] = sums[rows - 1 - row]; // FAULT: device race: sums
#endif
}
