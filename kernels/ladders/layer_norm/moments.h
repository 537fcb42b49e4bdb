// Copyright (c) 2026 mlx_norms contributors
//
// Mean and squared deviations, of one element after another by Welford's method
// (1962), and merged from two sets of elements by that of Chan, Golub and
// LeVeque (1979).

#pragma once

#include "kernels/common/simds_sum.h"

// float32 cannot hold a large mean exactly enough, so `mean` is relative to
// `base`, the first element's value.
struct Moments {
  float base;
  float mean;    // of the elements less base
  float squares; // the sum of their squared deviations from the mean
  float count;

  void add(float v) thread {
    base = count == 0.0f ? v : base;
    count += 1.0f;
    float d = v - base - mean;
    mean += d / count;
    squares += d * (v - base - mean);
  }
};

// The moments of a's and b's elements; b has none if a has none.
inline Moments merged(Moments a, Moments b) {
  if (b.count == 0.0f) {
    return a;
  }
  float count = a.count + b.count;
  float d = (b.base - a.base) + (b.mean - a.mean);
  float step = d * (b.count / count);
  return Moments{
      a.base, a.mean + step, a.squares + b.squares + d * step * a.count, count};
}

// The moments of all lanes' elements, in each lane. Lower lanes' elements come
// first, so that all lanes are bit-identical.
inline Moments lanes_merged(Moments m, int lane) {
  for (int i = 0; i < 5; ++i) {
    int step = 1 << i;
    Moments other = Moments{
        simd_shuffle_xor(m.base, step),
        simd_shuffle_xor(m.mean, step),
        simd_shuffle_xor(m.squares, step),
        simd_shuffle_xor(m.count, step)};
    bool lower = (lane & step) == 0;
    m = merged(lower ? m : other, lower ? other : m);
  }
  return m;
}

// The moments of a threadgroup's elements, in each thread.
inline Moments group_merged(
    Moments m,
    int simd,
    int lane,
    int simds,
    threadgroup float4* partial) {
  m = lanes_merged(m, lane);
  if (simds == 1) {
    return m;
  }
  if (lane == 0) {
    partial[simd] = float4(m.base, m.mean, m.squares, m.count);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float4 p = lane < simds ? partial[lane] : float4(0.0f);
  return lanes_merged(Moments{p.x, p.y, p.z, p.w}, lane);
}
