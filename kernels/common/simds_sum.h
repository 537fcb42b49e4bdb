// Copyright (c) 2026 mlx_norms contributors
//
// Sums over the threads of several SIMD-groups, returned to each thread: first
// over the lanes, then over the SIMD-groups' totals in `partial`.

#pragma once

#include <metal_stdlib>

using namespace metal;

constant constexpr int kSimdSize = 32;

// The sum over `count` adjacent lanes, a power of two.
inline float lanes_sum(float v, int count) {
  for (int step = kSimdSize / 2; step > 0; step /= 2) {
    v = step < count ? v + simd_shuffle_xor(v, step) : v;
  }
  return v;
}
inline float2 lanes_sum(float2 v, int count) {
  return float2(lanes_sum(v.x, count), lanes_sum(v.y, count));
}
inline float4 lanes_sum(float4 v, int count) {
  return float4(
      lanes_sum(v.x, count),
      lanes_sum(v.y, count),
      lanes_sum(v.z, count),
      lanes_sum(v.w, count));
}

// Adds lanes that are `step` apart: `low` in lanes without the bit `step`,
// `high` in lanes with it.
inline float halves_sum(float low, float high, int lane, int step) {
  bool upper = lane & step;
  return (upper ? high : low) + simd_shuffle_xor(upper ? low : high, step);
}

#ifdef __CUDACC__

// A shuffle moves one float, and only a few run per cycle. So the components
// (parts) of a vector share them: after one step, or two for float4, each part
// is summed by its own half or quarter of the lanes. The order of additions is
// that of a single float, so the sums are bit-identical.

inline int lanes_a_part(float) {
  return 32;
}
inline int lanes_a_part(float2) {
  return 16;
}
inline int lanes_a_part(float4) {
  return 8;
}

inline float parts_sum(float v, int) {
  return lanes_sum(v, 32);
}
inline float parts_sum(float2 v, int lane) {
  return lanes_sum(halves_sum(v.x, v.y, lane, 16), 16);
}
inline float parts_sum(float4 v, int lane) {
  float a = halves_sum(v.x, v.z, lane, 16);
  float b = halves_sum(v.y, v.w, lane, 16);
  return lanes_sum(halves_sum(a, b, lane, 8), 8);
}

inline void collect(float sum, thread float& v) {
  v = sum;
}
inline void collect(float sum, thread float2& v) {
  v = float2(simd_shuffle(sum, 0), simd_shuffle(sum, 16));
}
inline void collect(float sum, thread float4& v) {
  v = float4(
      simd_shuffle(sum, 0),
      simd_shuffle(sum, 8),
      simd_shuffle(sum, 16),
      simd_shuffle(sum, 24));
}

// One part of a SIMD-group's total; zero past the last SIMD-group.
inline float
total_of(threadgroup const float* totals, int parts, int simd, int simds) {
  return simd < simds ? totals[simd * parts] : 0.0f;
}

// The sum of one part of all totals, taken by `lanes` lanes.
inline float totals_sum(
    threadgroup const float* totals,
    int parts,
    int lane,
    int lanes,
    int simds) {
  int count = 1; // a power of two
  for (int i = 0; i < 5; ++i) {
    count = count < simds ? 2 * count : count;
  }
  if (count <= lanes) {
    return lanes_sum(total_of(totals, parts, lane % count, simds), count);
  }
  float sum = total_of(totals, parts, lane, simds);
  float next = total_of(totals, parts, lane + lanes, simds);
  if (count == 4 * lanes) {
    sum += total_of(totals, parts, lane + 2 * lanes, simds);
    next += total_of(totals, parts, lane + 3 * lanes, simds);
  }
  return lanes_sum(sum + next, lanes);
}

template <typename T> // float, float2 or float4
inline T
simds_sum(T v, int simd, int lane, int simds, threadgroup float4* partial) {
  float sum = parts_sum(v, lane);
  if (simds > 1) {
    int lanes = lanes_a_part(v);
    int parts = kSimdSize / lanes;
    threadgroup float* totals = (threadgroup float*)partial + lane / lanes;
    if (lane % lanes == 0) {
      totals[simd * parts] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = totals_sum(totals, parts, lane % lanes, lanes, simds);
  }
  collect(sum, v);
  return v;
}

#else

inline float simd_total(float v) {
  return simd_sum(v);
}
inline float2 simd_total(float2 v) {
  return float2(simd_sum(v.x), simd_sum(v.y));
}
inline float4 simd_total(float4 v) {
  return float4(simd_sum(v.x), simd_sum(v.y), simd_sum(v.z), simd_sum(v.w));
}

template <typename T> // float, float2 or float4
inline T
simds_sum(T v, int simd, int lane, int simds, threadgroup float4* partial) {
  v = simd_total(v);
  if (simds == 1) {
    return v;
  }
  threadgroup T* totals = (threadgroup T*)partial;
  if (lane == 0) {
    totals[simd] = v;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_total(lane < simds ? totals[lane] : T(0.0f));
}

#endif
