// Copyright (c) 2026 mlx_norms contributors
//
// A threadgroup of TxT threads reads square tiles of A and B into threadgroup
// memory, one element per thread, and each thread sums one element of C from
// them.

#pragma once

#include "kernels/ladders/sgemm/ladder.h"

template <int T>
[[kernel, max_total_threads_per_threadgroup(T* T)]] void sgemm_square_tiles(
    device const float* a [[buffer(0)]],
    device const float* b [[buffer(1)]],
    device float* c [[buffer(2)]],
    constant const uint& rows [[buffer(3)]],
    constant const uint& columns [[buffer(4)]],
    constant const uint& depth [[buffer(5)]],
    constant const uint& a_step [[buffer(6)]],
    constant const uint& b_step [[buffer(7)]],
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
