// Copyright (c) 2026 mlx_norms contributors
//
// A thread per element of C, in groups of 16x16.

#include "kernels/ladders/sgemm/ladder.h"

[[kernel, max_total_threads_per_threadgroup(256)]] void sgemm_naive(
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
