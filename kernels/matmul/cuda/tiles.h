// Copyright (c) 2026 mlx_norms contributors
//
// Vectors of rows for matrix units, each of which becomes several tiles. E is
// the number of elements per vector: 8 of 16 bits, or 4.

#pragma once

#include "kernels/common/matrix_units.h"
#include "kernels/matmul/gemv.h"

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
