// Copyright (c) 2026 mlx_norms contributors
//
// Products of tiles of 16 bits with sums in float32, by a SIMD-group's lanes
// together, in NVIDIA's layout (mma.m16n8k16 of the PTX manual). With `row` for
// lane / 4 and `pair` for lane % 4 a lane has
//
//   of a, 16 x 16: elements 2 pair and the next of lines row (x) and row + 8
//                  (y), and those 8 further on (z, w), two a word
//   of b, 16 x 8:  the same of column row: x, and 8 further on y
//   of the sums:   columns 2 pair and the next of line row, then of row + 8
//
// The order of the 16 elements is free, as long as a and b agree: vectors as
// memory has them make up several tiles.

#pragma once

#include "kernels/matmul/gemv.h"

#ifndef __CUDACC__
// The two values of another lane's word.
inline float2 values_of_lane(uint word, int lane) {
  float4 both = widen(uint2(simd_shuffle(word, ushort(lane)), 0), matmul_type);
  return float2(both.x, both.y);
}
#endif

// sums += a b
inline void multiply_tile(uint4 a, uint2 b, thread float* sums, uint lane) {
#ifdef __CUDACC__
  matrix_multiply(a, b, matmul_type == kFloat16, sums);
#else
  uint of_a[4] = {a.x, a.y, a.z, a.w};
  uint of_b[2] = {b.x, b.y};
  int row = int(lane) / 4, columns = int(lane) % 4 * 2;
  for (int part = 0; part < 2; ++part) {
    for (int pair = 0; pair < 4; ++pair) {
      for (int i = 0; i < 4; ++i) {
        float2 u = values_of_lane(of_a[2 * part + i / 2], row * 4 + pair);
        float2 v = values_of_lane(of_b[part], (columns + i % 2) * 4 + pair);
        sums[i] = fma(u.y, v.y, fma(u.x, v.x, sums[i]));
      }
    }
  }
#endif
}

// Which matrix a group is of. Most launches have one, and need not divide.
inline uint matrix_of(uint group, uint blocks) {
  return group < blocks ? 0 : group / blocks;
}

// Eight elements of a row of x from element `at` on, or zeros.
inline uint4
row_vector(device const uchar* x, int x_step, uint at, uint depth, bool there) {
  uint left = there ? elements_left(at, depth) : 0;
  long step = x_vectors ? 1 : x_step;
  return eight_bits(matmul_at(x, long(at) * step), x_vectors, x_step, left).low;
}
