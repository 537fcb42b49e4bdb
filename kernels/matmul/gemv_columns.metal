// Copyright (c) 2026 mlx_norms contributors
//
// Rows times a matrix whose rows are contiguous. A threadgroup computes R rows
// of 32 columns: the lanes with the same lane / 4 have eight adjacent columns
// each. The eight values of lane / 4 and all SIMD-groups split the depth, eight
// at a time. The sums' order is the same on CUDA and on Metal, where fewer
// values are in registers at once.

#include "kernels/matmul/gemv.h"

template <int R, int L> // rows; rows of w that are loaded together
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
#ifdef __CUDACC__
  c += matrix * R * columns * size_of(matmul_type);
  uint begin = thread_index;
#endif
  float sum[R][8];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < 8; ++j) {
      sum[r][j] = 0.0f;
    }
  }
#ifdef __CUDACC__
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
#else
  uint k = (simd * 8 + lane / 4) * 8;
  uint step = simds * 64;
  uint end = column < columns ? depth : 0;
  device const uchar* of_w = matmul_at(w, long(k) * w_row + column);
  device const uchar* of_x = matmul_at(x, long(k) * x_step);
  for (; k < end; k += step) {
    for (int part = 0; part < 8; part += L) {
      uint rows_left = w_vectors ? L : elements_left(k + part, depth);
      float w_of[L][8];
      for (int i = 0; i < L; ++i) {
        uint left = w_vectors ? 8 : uint(i) < rows_left ? columns - column : 0;
        four_values(of_w, w_vectors, 1, left, w_of[i]);
        four_values(
            matmul_at(of_w, 4),
            w_vectors,
            1,
            elements_left(4, left),
            w_of[i] + 4);
        of_w = matmul_at(of_w, w_row);
      }
      device const uchar* row = of_x;
      for (int r = 0; r < R; ++r) {
        for (int i = 0; i < L; ++i) {
          int at = i * (x_vectors ? 1 : x_step);
          float v = uint(i) < rows_left ? load(matmul_at(row, at), matmul_type)
                                        : 0.0f;
          for (int j = 0; j < 8; ++j) {
            sum[r][j] = fma(v, w_of[i][j], sum[r][j]);
          }
        }
        row = matmul_at(row, x_row);
      }
      of_x = matmul_at(of_x, long(L) * x_step);
    }
    of_w = matmul_at(of_w, long(step - 8) * w_row);
    of_x = matmul_at(of_x, long(step - 8) * x_step);
  }
  // Here, as they would take registers in the loop.
  c += matrix * R * columns * size_of(matmul_type);
  uint begin = simd * 32 + lane;
#endif

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
  for (uint n = begin; n < R * 32; n += simds * 32) {
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

#ifdef __CUDACC__
INSTANTIATE_GEMV_COLUMNS(1, 8)
INSTANTIATE_GEMV_COLUMNS(2, 8)
INSTANTIATE_GEMV_COLUMNS(3, 8)
INSTANTIATE_GEMV_COLUMNS(4, 8)
INSTANTIATE_GEMV_COLUMNS(5, 4)
INSTANTIATE_GEMV_COLUMNS(6, 4)
INSTANTIATE_GEMV_COLUMNS(7, 4)
INSTANTIATE_GEMV_COLUMNS(8, 4)
#else
INSTANTIATE_GEMV_COLUMNS(1, 2)
INSTANTIATE_GEMV_COLUMNS(2, 2)
INSTANTIATE_GEMV_COLUMNS(3, 2)
INSTANTIATE_GEMV_COLUMNS(4, 2)
INSTANTIATE_GEMV_COLUMNS(5, 2)
INSTANTIATE_GEMV_COLUMNS(6, 2)
INSTANTIATE_GEMV_COLUMNS(7, 2)
INSTANTIATE_GEMV_COLUMNS(8, 1)
#endif
