// Copyright © 2026 mlx_norms contributors
//
// Launches over a limit of the device. REPAIRED gives the clean twin.

#include <metal_stdlib>
using namespace metal;

// One float over 32 KB.
kernel void threadgroup_memory_over_limit(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_position_in_threadgroup]]) {
#ifdef REPAIRED
  threadgroup float big[8192];
#else
  threadgroup float big[8193]; // FAULT: threadgroup memory limit: big
#endif
  big[128 * t] = x[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = big[128 * (t ^ 1)];
}

// 16 KB of its own, and 20 KB that the launch sets.
kernel void threadgroup_argument_over_limit(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    threadgroup float* shared [[threadgroup(0)]],
    uint t [[thread_position_in_threadgroup]]) {
#ifdef REPAIRED
  threadgroup float own[1024];
#else
  threadgroup float own[4096]; // FAULT: threadgroup memory limit: own
#endif
  own[t] = x[t];
  shared[t] = x[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = own[t ^ 1] + shared[t ^ 1];
}

// Launched with 33 x 32 threads, the twin with 32 x 32.
kernel void too_many_threads( // FAULT: thread limit
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint t [[thread_index_in_threadgroup]]) {
  y[t] = 2 * x[t];
}
