// Copyright (c) 2026 mlx_norms contributors
//
// A threadgroup of 8x8 threads sums a 32x32 tile of C, 16 terms at a time. A
// thread has 4x4 elements in registers, every eighth of a row and of a column,
// so that adjacent threads load and store adjacent elements.

#include "kernels/ladders/sgemm/ladder.h"

[[kernel, max_total_threads_per_threadgroup(64)]] void sgemm_tile_threads(
    device const float* a [[buffer]],
    device const float* b [[buffer]],
    device float* c [[buffer]],
    constant const uint& rows [[buffer]],
    constant const uint& columns [[buffer]],
    constant const uint& depth [[buffer]],
    constant const uint& a_step [[buffer]],
    constant const uint& b_step [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 at [[thread_position_in_threadgroup]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float a_tile[32][16];
  threadgroup float b_tile[16][32];
  TileOrigin tile = tile_origin(group.x, rows, columns, 32, 32);
  a += tile.matrix * a_step * rows * depth;
  b += tile.matrix * b_step * depth * columns;
  float sum[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      sum[i][j] = 0.0f;
    }
  }
  for (uint k = 0; k < depth; k += 16) {
    for (uint i = thread_index; i < 512; i += 64) {
      uint row = i / 16, column = i % 16;
      a_tile[row][column] =
          sgemm_element(a, rows, depth, tile.row + row, k + column);
    }
    for (uint i = thread_index; i < 512; i += 64) {
      uint row = i / 32, column = i % 32;
      b_tile[row][column] =
          sgemm_element(b, depth, columns, k + row, tile.column + column);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // the tiles are there
    for (int p = 0; p < 16; ++p) {
      float of_a[4], of_b[4];
      for (int i = 0; i < 4; ++i) {
        of_a[i] = a_tile[at.y + 8 * i][p];
        of_b[i] = b_tile[p][at.x + 8 * i];
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          sum[i][j] = fma(of_a[i], of_b[j], sum[i][j]);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // and have been read
  }
  c += tile.matrix * rows * columns;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      uint row = tile.row + at.y + 8 * i;
      uint column = tile.column + at.x + 8 * j;
      if (row < rows && column < columns) {
        c[ulong(row) * columns + column] = sum[i][j];
      }
    }
  }
}
