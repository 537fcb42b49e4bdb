// Copyright (c) 2026 mlx_norms contributors
//
// Rows times a matrix whose rows' elements adjoin. A group sums R rows of 32
// columns: four lanes of a SIMD-group have eight adjacent columns each, and all
// else, eight lanes by all SIMD-groups, shares the depth, four at a time.

#include "kernels/matmul/gemv.h"

template <int R>
[[kernel, max_total_threads_per_threadgroup(512)]] void gemv_columns(
    device const uchar* x [[buffer(0)]],
    device const uchar* w [[buffer(1)]],
    device uchar* c [[buffer(2)]],
    constant const uint& rows [[buffer(3)]], // R at most
    constant const uint& columns [[buffer(4)]],
    constant const uint& depth [[buffer(5)]],
    constant const int& x_row [[buffer(6)]], // elements from each to the next
    constant const int& x_step [[buffer(7)]],
    constant const int& w_row [[buffer(8)]],
    constant const uint& c_row [[buffer(9)]],
    constant const uint& c_column [[buffer(10)]],
    constant const int& x_matrix [[buffer(11)]],
    constant const int& w_matrix [[buffer(12)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float partial[16][R][32];
  uint blocks = (columns + 31) / 32;
  ulong matrix = group / blocks;
  uint first = group % blocks * 32;
  uint column = first + lane % 4 * 8;
  x = matmul_at(x, long(matrix) * x_matrix);
  w = matmul_at(w, long(matrix) * w_matrix + column);
  c += matrix * rows * columns * size_of(matmul_type);
  int left = int(columns) - int(column);

  float sum[R][8];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < 8; ++j) {
      sum[r][j] = 0.0f;
    }
  }
  for (uint k = (simd * 8 + lane / 4) * 4; k < depth; k += simds * 32) {
    EightBits bits[4];
    for (int i = 0; i < 4; ++i) {
      bits[i] = eight_bits(
          matmul_at(w, long(k + i) * w_row),
          w_vectors,
          1,
          k + i < depth ? left : 0);
    }
    for (int i = 0; i < 4; ++i) {
      float w_of[8];
      eight_values(bits[i], w_of);
      for (int r = 0; r < R; ++r) {
        // Past the last row, it again.
        long at = long(min(uint(r), rows - 1)) * x_row + long(k + i) * x_step;
        float of_x = k + i < depth ? load(matmul_at(x, at), matmul_type) : 0.0f;
        for (int j = 0; j < 8; ++j) {
          sum[r][j] = fma(of_x, w_of[j], sum[r][j]);
        }
      }
    }
  }

  // The eight lanes share their columns: each has one.
  for (int r = 0; r < R; ++r) {
    float of_four[4];
    for (int j = 0; j < 4; ++j) {
      of_four[j] = split_sum(sum[r][j], sum[r][j + 4], lane, 16);
    }
    float low = split_sum(of_four[0], of_four[2], lane, 8);
    float high = split_sum(of_four[1], of_four[3], lane, 8);
    uint mine = lane % 4 * 8 + lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2;
    partial[simd][r][mine] = split_sum(low, high, lane, 4);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint n = thread_index; n < R * 32; n += simds * 32) {
    uint r = n / 32;
    float total = 0.0f;
    for (uint s = 0; s < simds; ++s) {
      total += partial[s][r][n % 32];
    }
    if (r < rows && first + n % 32 < columns) {
      ulong at = ulong(r) * c_row + ulong(first + n % 32) * c_column;
      store(c + at * size_of(matmul_type), matmul_type, total);
    }
  }
}

#define INSTANTIATE_GEMV_COLUMNS(R)                     \
  template [[host_name("gemv_columns_" #R)]] [[kernel]] \
  decltype(gemv_columns<R>) gemv_columns<R>;

INSTANTIATE_GEMV_COLUMNS(1)
INSTANTIATE_GEMV_COLUMNS(2)
INSTANTIATE_GEMV_COLUMNS(4)
INSTANTIATE_GEMV_COLUMNS(8)
