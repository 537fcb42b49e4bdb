// Copyright (c) 2026 mlx_norms contributors
//
// A threadgroup of four SIMD-groups sums a tile of C, DEPTH terms at a time. It
// loads tiles of A and B into threadgroup memory, as float32, and each
// SIMD-group multiplies a quarter of the tile in blocks of 8x8, so that every
// block it loads is used in several multiplications.
//
// A matrix is read in lines, along which its elements are contiguous: its rows,
// or its columns if it is transposed. Tiles are stored in lines, too, padded by
// 16 bytes to avoid bank conflicts.

#pragma once

#include <metal_simdgroup_matrix>

#include "kernels/matmul/tile.h"
#include "kernels/matmul/types.h"

constant bool a_transposed [[function_constant]];
constant bool b_transposed [[function_constant]];
constant bool a_vectors [[function_constant]]; // vectors of 4 are aligned
constant bool b_vectors [[function_constant]];
constant bool whole_tiles [[function_constant]]; // no tile passes an edge

constant constexpr int kBlockedThreads = 128;

struct MatmulLines {
  device const uchar* data;
  int step; // elements from one line to the next
  uint lines;
  uint length;
  bool vectors;
};

// Four elements of a line; zeros past the matrix's edges, which do not change
// C.
inline float4 matmul_vector(MatmulLines m, uint line, uint at) {
  device const uchar* p = matmul_at(m.data, long(line) * m.step + at);
  bool in_line = whole_tiles || line < m.lines;
  float v[4];
  if (m.vectors && in_line && (whole_tiles || at + 4 <= m.length)) {
    load_vector<4>(p, 0, matmul_type, v);
  } else {
    for (int j = 0; j < 4; ++j) {
      v[j] = in_line && (whole_tiles || at + j < m.length)
          ? load(p + j * size_of(matmul_type), matmul_type)
          : 0.0f;
    }
  }
  return take(v);
}

// Loads LINES lines of LENGTH elements, starting at element `at` of line
// `line`.
template <int LINES, int LENGTH>
inline void load_tile(
    MatmulLines m,
    uint line,
    uint at,
    threadgroup float4* tile,
    uint thread_index) {
  for (int n = 0; n < (LINES * LENGTH / 4 + 127) / 128; ++n) {
    uint i = thread_index + kBlockedThreads * n;
    if (LINES * LENGTH / 4 % kBlockedThreads == 0 || i < LINES * LENGTH / 4) {
      uint of = i / (LENGTH / 4), k = i % (LENGTH / 4);
      tile[of * (LENGTH / 4 + 1) + k] = matmul_vector(m, line + of, at + 4 * k);
    }
  }
}

// Loads the block at (row, column) of a tile of ROWS x COLUMNS.
template <int ROWS, int COLUMNS>
inline void load_tile_block(
    thread simdgroup_float8x8& block,
    threadgroup const float4* tile,
    bool transposed,
    uint row,
    uint column) {
  threadgroup const float* elements = (threadgroup const float*)tile;
  if (transposed) {
    elements += column * (ROWS + 4) + row;
    simdgroup_load(block, elements, ROWS + 4, ulong2(0, 0), true);
  } else {
    simdgroup_load(block, elements + row * (COLUMNS + 4) + column, COLUMNS + 4);
  }
}

template <int ROWS, int COLUMNS, int DEPTH>
[[kernel, max_total_threads_per_threadgroup(128)]] void simdgroup_blocked(
    device const uchar* a [[buffer]],
    device const uchar* b [[buffer]],
    device uchar* c [[buffer]],
    constant const uint& rows [[buffer]],
    constant const uint& columns [[buffer]],
    constant const uint& depth [[buffer]],
    constant const int& a_line [[buffer]], // strides, in elements
    constant const int& b_line [[buffer]],
    constant const int& a_matrix [[buffer]],
    constant const int& b_matrix [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  // Large enough for lines along either dimension.
  threadgroup float4 a_tile[ROWS * (DEPTH / 4 + 1)];
  threadgroup float4 b_tile[COLUMNS * (DEPTH / 4 + 1)];
  TileOrigin tile = tile_origin(group, rows, columns, ROWS, COLUMNS);
  a = matmul_at(a, long(tile.matrix) * a_matrix);
  b = matmul_at(b, long(tile.matrix) * b_matrix);
  c += tile.matrix * rows * columns * size_of(matmul_type);
  MatmulLines of_a = MatmulLines{
      a,
      a_line,
      a_transposed ? depth : rows,
      a_transposed ? rows : depth,
      a_vectors};
  MatmulLines of_b = MatmulLines{
      b,
      b_line,
      b_transposed ? columns : depth,
      b_transposed ? depth : columns,
      b_vectors};
  uint simd_row = simd / 2 * (ROWS / 2);
  uint simd_column = simd % 2 * (COLUMNS / 2);

  simdgroup_float8x8 sum[ROWS / 16][COLUMNS / 16];
  for (int i = 0; i < ROWS / 16; ++i) {
    for (int j = 0; j < COLUMNS / 16; ++j) {
      sum[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  for (uint k = 0; k < depth; k += DEPTH) {
    if (a_transposed) {
      load_tile<DEPTH, ROWS>(of_a, k, tile.row, a_tile, thread_index);
    } else {
      load_tile<ROWS, DEPTH>(of_a, tile.row, k, a_tile, thread_index);
    }
    if (b_transposed) {
      load_tile<COLUMNS, DEPTH>(of_b, tile.column, k, b_tile, thread_index);
    } else {
      load_tile<DEPTH, COLUMNS>(of_b, k, tile.column, b_tile, thread_index);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // the tiles are there
    for (int p = 0; p < DEPTH; p += 8) {
      simdgroup_float8x8 left[ROWS / 16], right[COLUMNS / 16];
      for (int i = 0; i < ROWS / 16; ++i) {
        load_tile_block<ROWS, DEPTH>(
            left[i], a_tile, a_transposed, simd_row + 8 * i, p);
      }
      for (int j = 0; j < COLUMNS / 16; ++j) {
        load_tile_block<DEPTH, COLUMNS>(
            right[j], b_tile, b_transposed, p, simd_column + 8 * j);
      }
      for (int i = 0; i < ROWS / 16; ++i) {
        for (int j = 0; j < COLUMNS / 16; ++j) {
          simdgroup_multiply_accumulate(
              sum[i][j], left[i], right[j], sum[i][j]);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // and have been read
  }

  // Stores eight rows at a time, through the memory of A's tile.
  threadgroup float4* strip = a_tile + simd * (COLUMNS + 8);
  for (int i = 0; i < ROWS / 16; ++i) {
    for (int j = 0; j < COLUMNS / 16; ++j) {
      threadgroup float* block = (threadgroup float*)strip + 8 * j;
      simdgroup_store(sum[i][j], block, COLUMNS / 2 + 4);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint n = lane; n < COLUMNS; n += 32) {
      uint row = n / (COLUMNS / 8), k = n % (COLUMNS / 8);
      float v[4];
      put(v, strip[row * (COLUMNS / 8 + 1) + k]);
      row += tile.row + simd_row + 8 * i;
      uint column = tile.column + simd_column + 4 * k;
      device uchar* to =
          c + (ulong(row) * columns + column) * size_of(matmul_type);
      if (whole_tiles) {
        store_vector<4>(to, matmul_type, v);
      } else {
        for (int j = 0; j < 4; ++j) {
          if (row < rows && column + j < columns) {
            store(to + j * size_of(matmul_type), matmul_type, v[j]);
          }
        }
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup); // the strip has been read
  }
}
