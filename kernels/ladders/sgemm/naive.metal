// Copyright (c) 2026 mlx_norms contributors
//
// A thread per element of C, in groups of 16x16.

#include "kernels/ladders/sgemm/ladder.h"

[[kernel, max_total_threads_per_threadgroup(256)]] void sgemm_naive(
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
  TileOrigin tile = tile_origin(group.x, rows, columns, 16, 16);
  uint row = tile.row + at.y;
  uint column = tile.column + at.x;
  if (row >= rows || column >= columns) {
    return;
  }
  a += (tile.matrix * a_step * rows + row) * depth;
  b += tile.matrix * b_step * depth * columns + column;
  float sum = 0.0f;
  for (uint k = 0; k < depth; ++k) {
    sum = fma(a[k], b[ulong(k) * columns], sum);
  }
  c[(tile.matrix * rows + row) * columns + column] = sum;
}
