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
// memory, each in several tiles. E is the number of elements per vector: 8 of
// 16 bits, or 4.

#pragma once

#include "kernels/matmul/gemv.h"

#ifndef __CUDACC__
// The two values of another lane's word, or its one float and zero.
inline float2 values_of_lane(uint word, int lane) {
  uint bits = simd_shuffle(word, ushort(lane));
  if (matmul_type == kFloat32) {
    return float2(as_type<float>(bits), 0.0f);
  }
  float4 both = widen(uint2(bits, 0), matmul_type);
  return float2(both.x, both.y);
}
#endif

// sums += a b
inline void multiply_tile(uint4 a, uint2 b, thread float* sums, uint lane) {
#ifdef __CUDACC__
  if (matmul_type == kFloat32) {
    matrix_multiply(a, b, sums);
  } else {
    matrix_multiply(a, b, matmul_type == kFloat16, sums);
  }
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

// The index of a threadgroup's matrix. Most launches have one matrix and need
// no division.
inline uint matrix_of(uint group, uint blocks) {
  return group < blocks ? 0 : group / blocks;
}

// The vector of a row of x that starts at element `at`, or zeros.
template <int E>
inline uint4
row_vector(device const uchar* x, int x_step, uint at, uint depth, bool there) {
  uint left = there ? min(elements_left(at, depth), uint(E)) : 0;
  if (x_vectors) {
    return left > 0 ? *(device const uint4*)matmul_at(x, at)
                    : uint4(0, 0, 0, 0);
  }
  return load_bits<8>(matmul_at(x, long(at) * x_step), false, x_step, left).low;
}

// The sum, or if it is large the sum without matrix units, which do not handle
// infinite floats.
inline float finished(
    float sum,
    device const uchar* x,
    int x_step,
    device const uchar* w,
    int w_step,
    uint depth) {
  if (matmul_type != kFloat32 || fabs(sum) < 1e38f) {
    return sum;
  }
  sum = 0.0f;
  for (uint k = 0; k < depth; ++k) {
    float of_x = load(matmul_at(x, long(k) * x_step), matmul_type);
    sum = fma(of_x, load(matmul_at(w, long(k) * w_step), matmul_type), sum);
  }
  return sum;
}
