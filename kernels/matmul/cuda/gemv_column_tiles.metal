// Copyright (c) 2026 mlx_norms contributors
//
// gemv_columns on matrix units: a threadgroup multiplies eight vectors of
// columns by up to 8 rows. Its SIMD-groups, and those of all threadgroups of a
// cluster, share the depth. A lane reads one vector from each of eight rows of
// w, and pairs elements of adjacent rows.

#include "kernels/matmul/cuda/tiles.h"

// A tile from columns 2 q and 2 q + 1 of a lane's rows.
template <int E>
inline uint4 tile_of(thread uint (*words)[4], int q) {
  if (E == 4) {
    return uint4(
        words[0][2 * q],
        words[0][2 * q + 1],
        words[1][2 * q],
        words[1][2 * q + 1]);
  }
  return uint4(
      low_halves(words[0][q], words[1][q]),
      high_halves(words[0][q], words[1][q]),
      low_halves(words[2][q], words[3][q]),
      high_halves(words[2][q], words[3][q]));
}

template <int E, int S> // elements per vector; SIMD-groups
[[kernel, max_total_threads_per_threadgroup(32 * S)]] void gemv_column_tiles(
    device const uchar* x [[buffer]],
    device const uchar* w [[buffer]],
    device uchar* c [[buffer]],
    constant const uint& columns [[buffer]],
    constant const uint& depth [[buffer]],
    constant const int& x_row [[buffer]], // strides, in elements
    constant const int& x_step [[buffer]],
    constant const int& w_row [[buffer]],
    constant const uint& c_row [[buffer]],
    constant const uint& c_column [[buffer]],
    constant const int& x_matrix [[buffer]],
    constant const int& w_matrix [[buffer]],
    constant const uint& rows [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[S][E / 2][32];
  uint blocks = (columns + 8 * E - 1) / (8 * E);
  uint cluster_index = group / uint(cluster);
  uint matrix = matrix_of(cluster_index, blocks);
  uint row = lane / 4, pair = lane % 4;
  uint first =
      ((cluster_index - matrix * blocks) * 8 + row) * E; // this lane's first
  x = matmul_at(x, long(matrix) * x_matrix);
  w = matmul_at(w, long(matrix) * w_matrix + first);
  c += ulong(matrix) * rows * columns * size_of(matmul_type);

  uint part = group % uint(cluster) * S + simd; // of the depth
  uint parts = uint(cluster) * S;
  device const uchar* of_row = matmul_at(x, long(min(row, rows - 1)) * x_row);
  device const uchar* of_w = matmul_at(w, long(part * 32 + pair * 8) * w_row);
  long next_row = long(w_row) * size_of(matmul_type);
  float sums[2 * E]; // those of columns 2q and 2q + 1 start at 4q
  for (int i = 0; i < 2 * E; ++i) {
    sums[i] = 0.0f;
  }
  for (uint from = part * 32; from < depth; from += parts * 32) {
    uint k = from + pair * 8;
    bool there = k < depth && first < columns;
    device const uchar* from_row = of_w;
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
    of_w += next_row * (32 * parts);
    uint4 of_x[8 / E];
    for (int i = 0; i < 8 / E; ++i) {
      uint at = k + uint(i) * E;
      of_x[i] = row_vector<E>(of_row, x_step, at, depth, row < rows);
    }
    for (int q = 0; q < E / 2; ++q) {
      for (int i = 0; i < 16 / E; ++i) {
        uint2 b = i % 2 == 0 ? of_x[i / 2].xy : of_x[i / 2].zw;
        uint4 a = tile_of<E>(words + i * (E / 2), q);
        multiply_tile(matmul_type, a, b, sums + 4 * q, lane);
      }
    }
  }

  for (int q = 0; q < E / 2; ++q) {
    partial[simd][q][lane] = take(sums + 4 * q);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  bool has_sums = simd < E / 2;
  if (has_sums) {
    float4 total = partial[0][simd][lane];
    for (int s = 1; s < S; ++s) {
      total += partial[s][simd][lane];
    }
    put(sums, total);
  }
  if (add_up_cluster(has_sums, sums) && has_sums) {
    for (uint i = 0; i < 4; ++i) {
      uint column = 2 * simd + i / 2, r = pair * 2 + i % 2;
      if (first + column < columns && r < rows) {
        float v = finished(
            sums[i],
            matmul_at(x, long(r) * x_row),
            x_step,
            matmul_at(w, column),
            w_row,
            depth);
        ulong at = ulong(r) * c_row + ulong(first + column) * c_column;
        store(c + at * size_of(matmul_type), matmul_type, v);
      }
    }
  }
}

#define INSTANTIATE_GEMV_COLUMN_TILES(E, S)                         \
  template [[host_name("gemv_column_tiles_" #E "_" #S)]] [[kernel]] \
  decltype(gemv_column_tiles<E, S>) gemv_column_tiles<E, S>;

INSTANTIATE_GEMV_COLUMN_TILES(4, 4)
INSTANTIATE_GEMV_COLUMN_TILES(4, 8)
INSTANTIATE_GEMV_COLUMN_TILES(4, 16)
INSTANTIATE_GEMV_COLUMN_TILES(8, 4)
INSTANTIATE_GEMV_COLUMN_TILES(8, 8)
INSTANTIATE_GEMV_COLUMN_TILES(8, 12)
INSTANTIATE_GEMV_COLUMN_TILES(8, 16)
