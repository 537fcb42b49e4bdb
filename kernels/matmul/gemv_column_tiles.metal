// Copyright (c) 2026 mlx_norms contributors
//
// gemv_columns of 16 bits where there are matrix units: a threadgroup sums the
// products of 64 columns with up to 8 rows. Its SIMD-groups share the depth. A
// lane reads eight columns of eight rows of w, and pairs them row by row.

#include "kernels/matmul/tiles.h"

inline uint low_halves(uint a, uint b) {
  return (a & 0xffffu) | b << 16;
}

inline uint high_halves(uint a, uint b) {
  return a >> 16 | (b & 0xffff0000u);
}

[[kernel, max_total_threads_per_threadgroup(512)]] void gemv_column_tiles(
    device const uchar* x [[buffer(0)]],
    device const uchar* w [[buffer(1)]],
    device uchar* c [[buffer(2)]],
    constant const uint& columns [[buffer(3)]],
    constant const uint& depth [[buffer(4)]],
    constant const int& x_row [[buffer(5)]], // elements from each to the next
    constant const int& x_step [[buffer(6)]],
    constant const int& w_row [[buffer(7)]],
    constant const uint& c_row [[buffer(8)]],
    constant const uint& c_column [[buffer(9)]],
    constant const int& x_matrix [[buffer(10)]],
    constant const int& w_matrix [[buffer(11)]],
    constant const uint& rows [[buffer(12)]],
    uint group [[threadgroup_position_in_grid]],
    uint simds [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[16][4][32];
  uint blocks = (columns + 63) / 64;
  uint matrix = matrix_of(group, blocks);
  uint row = lane / 4, pair = lane % 4;
  uint first =
      (group - matrix * blocks) * 64 + row * 8; // of this lane's columns
  x = matmul_at(x, long(matrix) * x_matrix + long(min(row, rows - 1)) * x_row);
  long of_row = long(simd * 32 + pair * 8) * w_row;
  w = matmul_at(w, long(matrix) * w_matrix + of_row + first);
  long next_row = long(w_row) * size_of(matmul_type);
  c += ulong(matrix) * rows * columns * size_of(matmul_type);
  float sums[16]; // of columns 2q and 2q + 1: those from 4q on
  for (int i = 0; i < 16; ++i) {
    sums[i] = 0.0f;
  }
  for (uint from = simd * 32; from < depth; from += simds * 32) {
    uint k = from + pair * 8;
    bool there = k < depth && first < columns;
    device const uchar* from_row = w;
    uint words[8][4];
    for (int i = 0; i < 8; ++i) {
      uint4 v = uint4(0, 0, 0, 0);
      if (there) {
        v = *(device const uint4*)from_row;
      }
      from_row += next_row;
      words[i][0] = v.x;
      words[i][1] = v.y;
      words[i][2] = v.z;
      words[i][3] = v.w;
    }
    w += next_row * (32 * simds);
    uint4 of_x = row_vector(x, x_step, k, depth, row < rows);
    for (int q = 0; q < 4; ++q) {
      for (int i = 0; i < 8; i += 4) {
        uint4 tile = uint4(
            low_halves(words[i][q], words[i + 1][q]),
            high_halves(words[i][q], words[i + 1][q]),
            low_halves(words[i + 2][q], words[i + 3][q]),
            high_halves(words[i + 2][q], words[i + 3][q]));
        multiply_tile(tile, i == 0 ? of_x.xy : of_x.zw, sums + 4 * q, lane);
      }
    }
  }

  for (int q = 0; q < 4; ++q) {
    partial[simd][q][lane] = take(sums + 4 * q);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint q = simd; q < 4; q += simds) {
    float4 total = partial[0][q][lane];
    for (uint s = 1; s < simds; ++s) {
      total += partial[s][q][lane];
    }
    put(sums, total);
    for (uint i = 0; i < 4; ++i) {
      uint column = first + 2 * q + i / 2, r = pair * 2 + i % 2;
      if (column < columns && r < rows) {
        ulong at = ulong(r) * c_row + ulong(column) * c_column;
        store(c + at * size_of(matmul_type), matmul_type, sums[i]);
      }
    }
  }
}
