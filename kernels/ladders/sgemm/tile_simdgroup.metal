// Copyright (c) 2026 mlx_norms contributors
//
// A SIMD-group sums an 8x8 block of C with the matrix unit. Whole blocks of A
// and B are loaded straight from device memory; blocks at an edge, also of C,
// go through threadgroup memory.

#include <metal_simdgroup_matrix>

#include "kernels/ladders/sgemm/ladder.h"

// Whether the block at (row, column) is within a matrix.
inline bool is_whole_block(uint rows, uint columns, uint row, uint column) {
  return row + 8 <= rows && column + 8 <= columns;
}

// Loads the block at (row, column) of a matrix, with zeros past its edges.
// `edge` is memory for a block that nobody is reading.
inline void load_block(
    thread simdgroup_float8x8& block,
    device const float* matrix,
    uint rows,
    uint columns,
    uint row,
    uint column,
    threadgroup float* edge,
    uint lane) {
  if (is_whole_block(rows, columns, row, column)) {
    simdgroup_load(block, matrix + ulong(row) * columns + column, columns);
    return;
  }
  for (uint i = lane; i < 64; i += 32) {
    edge[i] = sgemm_element(matrix, rows, columns, row + i / 8, column + i % 8);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(block, edge, 8);
}

[[kernel, max_total_threads_per_threadgroup(32)]] void sgemm_tile_simdgroup(
    device const float* a [[buffer]],
    device const float* b [[buffer]],
    device float* c [[buffer]],
    constant const uint& rows [[buffer]],
    constant const uint& columns [[buffer]],
    constant const uint& depth [[buffer]],
    constant const uint& a_step [[buffer]],
    constant const uint& b_step [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float a_edge[64];
  threadgroup float b_edge[64];
  TileOrigin tile = tile_origin(group, rows, columns, 8, 8);
  a += tile.matrix * a_step * rows * depth;
  b += tile.matrix * b_step * depth * columns;
  c += tile.matrix * rows * columns;
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < depth; k += 8) {
    simdgroup_float8x8 of_a, of_b;
    load_block(of_a, a, rows, depth, tile.row, k, a_edge, lane);
    load_block(of_b, b, depth, columns, k, tile.column, b_edge, lane);
    simdgroup_multiply_accumulate(sum, of_a, of_b, sum);
    simdgroup_barrier(mem_flags::mem_threadgroup); // the edges have been read
  }
  if (is_whole_block(rows, columns, tile.row, tile.column)) {
    simdgroup_store(sum, c + ulong(tile.row) * columns + tile.column, columns);
    return;
  }
  simdgroup_store(sum, a_edge, 8);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < 64; i += 32) {
    uint row = tile.row + i / 8, column = tile.column + i % 8;
    if (row < rows && column < columns) {
      c[ulong(row) * columns + column] = a_edge[i];
    }
  }
}
