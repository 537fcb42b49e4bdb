// Copyright (c) 2026 mlx_norms contributors
//
// A threadgroup of TxT threads reads square tiles of A and B into threadgroup
// memory, one element per thread, and each thread sums one element of C from
// them.

#pragma once

#include "kernels/ladders/sgemm/ladder.h"

template <int T>
[[kernel, max_total_threads_per_threadgroup(T* T)]] void sgemm_square_tiles(
    device const float* a [[buffer]],
    device const float* b [[buffer]],
    device float* c [[buffer]],
    constant const uint& rows [[buffer]],
    constant const uint& columns [[buffer]],
    constant const uint& depth [[buffer]],
    constant const uint& a_step [[buffer]],
    constant const uint& b_step [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 at [[thread_position_in_threadgroup]]) {
  threadgroup float a_tile[T][T];
  threadgroup float b_tile[T][T];
  TileOrigin tile = tile_origin(group.x, rows, columns, T, T);
  uint row = tile.row + at.y;
  uint column = tile.column + at.x;
  a += tile.matrix * a_step * rows * depth;
  b += tile.matrix * b_step * depth * columns;
  float sum = 0.0f;
  for (uint k = 0; k < depth; k += T) {
    a_tile[at.y][at.x] = sgemm_element(a, rows, depth, row, k + at.x);
    b_tile[at.y][at.x] = sgemm_element(b, depth, columns, k + at.y, column);
    threadgroup_barrier(mem_flags::mem_threadgroup); // the tiles are there
    for (int i = 0; i < T; ++i) {
      sum = fma(a_tile[at.y][i], b_tile[i][at.x], sum);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // and have been read
  }
  if (row < rows && column < columns) {
    c[(tile.matrix * rows + row) * columns + column] = sum;
  }
}
