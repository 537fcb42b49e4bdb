// Copyright (c) 2026 mlx_norms contributors
//
// Rows times a matrix whose rows are contiguous. A threadgroup computes R rows
// of 32 columns: the lanes with the same lane / 4 have eight adjacent columns
// each. The eight values of lane / 4 and all SIMD-groups split the depth, eight
// at a time.

#include "kernels/matmul/gemv.h"

template <int R, int L> // rows; loads issued together
[[kernel, max_total_threads_per_threadgroup(512)]] void gemv_columns(
    device const uchar* x [[buffer(0)]],
    device const uchar* w [[buffer(1)]],
    device uchar* c [[buffer(2)]],
    constant const uint& columns [[buffer(3)]],
    constant const uint& depth [[buffer(4)]],
    constant const int& x_row [[buffer(5)]], // strides, in elements
    constant const int& x_step [[buffer(6)]],
    constant const int& w_row [[buffer(7)]],
    constant const uint& c_row [[buffer(8)]],
    constant const uint& c_column [[buffer(9)]],
    constant const int& x_matrix [[buffer(10)]],
    constant const int& w_matrix [[buffer(11)]],
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
  w = matmul_at(w, long(matrix) * w_matrix);
  c += matrix * R * columns * size_of(matmul_type);
  float sum[R][8];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < 8; ++j) {
      sum[r][j] = 0.0f;
    }
  }
  for (uint k = (simd * 8 + lane / 4) * 8; k < depth; k += simds * 64) {
    for (int part = 0; part < 8; part += L) {
      EightBits bits[L];
      for (int i = 0; i < L; ++i) {
        uint row = k + part + i;
        bool there = w_vectors || row < depth;
        bits[i] = eight_bits(
            matmul_at(w, long(row) * w_row + column),
            w_vectors,
            1,
            there ? elements_left(column, columns) : 0);
      }
      for (int from = 0; from < L; from += 4) {
        float w_of[4][8];
        for (int i = 0; i < 4; ++i) {
          eight_values(bits[from + i], w_of[i]);
        }
        uint at = k + part + from;
        uint left = w_vectors ? 4 : elements_left(at, depth);
        for (int r = 0; r < R; ++r) {
          device const uchar* of_x =
              matmul_at(x, long(r) * x_row + long(at) * x_step);
          float v[4];
          four_values(of_x, x_vectors, x_step, left, v);
          for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < 8; ++j) {
              sum[r][j] = fma(v[i], w_of[i][j], sum[r][j]);
            }
          }
        }
      }
    }
  }

  // Eight lanes have the same eight columns. Each gets the total of one column.
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
    if (first + n % 32 < columns) {
      ulong at = ulong(r) * c_row + ulong(first + n % 32) * c_column;
      store(c + at * size_of(matmul_type), matmul_type, total);
    }
  }
}

#define INSTANTIATE_GEMV_COLUMNS(R, L)                  \
  template [[host_name("gemv_columns_" #R)]] [[kernel]] \
  decltype(gemv_columns<R, L>) gemv_columns<R, L>;

INSTANTIATE_GEMV_COLUMNS(1, 8)
INSTANTIATE_GEMV_COLUMNS(2, 8)
INSTANTIATE_GEMV_COLUMNS(3, 8)
INSTANTIATE_GEMV_COLUMNS(4, 8)
INSTANTIATE_GEMV_COLUMNS(5, 4)
INSTANTIATE_GEMV_COLUMNS(6, 4)
INSTANTIATE_GEMV_COLUMNS(7, 4)
INSTANTIATE_GEMV_COLUMNS(8, 4)
