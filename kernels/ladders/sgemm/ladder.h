// Copyright (c) 2026 mlx_norms contributors
//
// SGEMM, C = A B in float32 with every row dense, in better and better kernels
// after vietfood/gemm_metal. What each rung improves in the one before it:
//
//   naive           nothing yet: a thread sums an element of C, and reads both
//                   factors of each product from device memory
//   tile_16         device reads: a threadgroup reads a 16x16 tile of A and B
//                   once
//   tile_32         half of the reads that are left; but with 1024 threads and
//                   8 KB per threadgroup, a core has few to alternate between
//   tile_threads    threadgroup reads, and how many threads wait at a barrier:
//                   a thread sums 4x4 elements in registers, so 64 threads are
//                   enough for a 32x32 tile
//   tile_simdgroup  arithmetic: the matrix unit multiplies 8x8 blocks, straight
//                   from device memory; two loads per multiply keep it waiting
//
// Rows and columns past the edges are guarded, so any size works. A batch of
// matrices is more threadgroups of one launch: if `a_step` is 0 all of them
// have the same matrix A, else each has its own.

#pragma once

#include "kernels/matmul/tile.h"

// Element (row, column) of a matrix; zero past its edges, which does not change
// C.
inline float sgemm_element(
    device const float* matrix,
    uint rows,
    uint columns,
    uint row,
    uint column) {
  return row < rows && column < columns ? matrix[ulong(row) * columns + column]
                                        : 0.0f;
}
