// Copyright (c) 2026 mlx_norms contributors
//
// Multiplies tiles with sums in float32, by all lanes of a SIMD-group together,
// in NVIDIA's layout (mma.m16n8k16 and mma.m16n8k8 in the PTX manual). With
// `row` for lane / 4 and `pair` for lane % 4, a lane holds words of 32 bits:
//
//   of a, 16 lines:  words pair and pair + 4 (z, w) of lines row (x, z) and
//                    row + 8 (y, w)
//   of b, 8 columns: words pair (x) and pair + 4 (y) of column row
//   of the sums:     columns 2 pair and the next of line row, then of row + 8
//
// A word is two 16-bit elements or a float. Elements may be in any order along
// the depth, as long as a and b agree, so vectors are used as they lie in
// memory, each in several tiles.

#pragma once

#include "kernels/common/cluster.h"

#ifndef __CUDACC__
// Pairs of 16-bit elements, one of each word.
inline uint low_halves(uint a, uint b) {
  return (a & 0xffffu) | b << 16;
}

inline uint high_halves(uint a, uint b) {
  return a >> 16 | (b & 0xffff0000u);
}

// The two values of another lane's word, or its one float and zero.
inline float2 values_of_lane(int type, uint word, int lane) {
  uint bits = simd_shuffle(word, ushort(lane));
  if (type == kFloat32) {
    return float2(as_type<float>(bits), 0.0f);
  }
  float4 both = widen(uint2(bits, 0), type);
  return float2(both.x, both.y);
}
#endif

// sums += a b, of elements of one type
inline void
multiply_tile(int type, uint4 a, uint2 b, thread float* sums, uint lane) {
#ifdef __CUDACC__
  if (type == kFloat32) {
    matrix_multiply(a, b, sums);
  } else {
    matrix_multiply(a, b, type == kFloat16, sums);
  }
#else
  uint of_a[4] = {a.x, a.y, a.z, a.w};
  uint of_b[2] = {b.x, b.y};
  int row = int(lane) / 4, columns = int(lane) % 4 * 2;
  for (int part = 0; part < 2; ++part) {
    for (int pair = 0; pair < 4; ++pair) {
      for (int i = 0; i < 4; ++i) {
        float2 u = values_of_lane(type, of_a[2 * part + i / 2], row * 4 + pair);
        float2 v =
            values_of_lane(type, of_b[part], (columns + i % 2) * 4 + pair);
        sums[i] = fma(u.y, v.y, fma(u.x, v.x, sums[i]));
      }
    }
  }
#endif
}

// Adds up the sums of all threadgroups of a cluster in its first one. Returns
// whether this threadgroup is the first, or alone.
inline bool add_up_cluster(bool has_sums, thread float* sums) {
#ifdef __CUDACC__
  if (cluster > 1) {
    if (has_sums) {
      cluster_store<4>(0, sums);
    }
    cluster_barrier();
    bool first = cluster_rank() == 0;
    if (first && has_sums) {
      cluster_reduce<4>(0, sums);
    }
    cluster_barrier(); // no threadgroup may exit while others read
    return first;
  }
#endif
  return true;
}
