// Copyright (c) 2026 mlx_norms contributors
//
// Rows times a matrix whose rows are contiguous. A threadgroup computes R rows
// of 32 columns: the lanes with the same lane / 4 have eight adjacent columns
// each. The eight values of lane / 4 and all SIMD-groups split the depth, eight
// at a time. The sums' order is the same however many values are in registers
// at once.

#include "kernels/matmul/gemv.h"

// Rows; rows of w that are loaded together; those that are multiplied together.
template <int R, int L, int E>
[[kernel, max_total_threads_per_threadgroup(512)]] void gemv_columns(
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
    uint group [[threadgroup_position_in_grid]],
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
  float sum[R][8];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < 8; ++j) {
      sum[r][j] = 0.0f;
    }
  }
  uint k = (simd * 8 + lane / 4) * 8;
  uint step = simds * 64;
  // Vectors are asked at each load instead, with fewer registers on CUDA.
  uint end = w_vectors || column < columns ? depth : 0;
  device const uchar* of_w = matmul_at(w, long(k) * w_row + column);
  Place of_x{x, 0};
  of_x.move(k, x_step);
  for (; k < end; k += step) {
    for (int part = 0; part < 8; part += L) {
      uint rows_left = w_vectors ? L : elements_left(k + part, depth);
      EightBits bits[L];
      for (int i = 0; i < L; ++i) {
        uint left = w_vectors     ? elements_left(column, columns)
            : uint(i) < rows_left ? columns - column
                                  : 0;
        bits[i] = load_bits<8>(of_w, w_vectors, 1, left);
        of_w = matmul_at(of_w, w_row);
      }
      for (int from = 0; from < L; from += E) {
        float w_of[E][8];
        for (int i = 0; i < E; ++i) {
          values_of<8>(bits[from + i], w_of[i]);
        }
        uint left = w_vectors ? E : elements_left(from, rows_left);
        device const uchar* row = of_x.at(0, x_step);
        for (int r = 0; r < R; ++r) {
          float v[E];
          values_of<E>(load_bits<E>(row, x_vectors, x_step, left), v);
          for (int i = 0; i < E; ++i) {
            for (int j = 0; j < 8; ++j) {
              sum[r][j] = fma(v[i], w_of[i][j], sum[r][j]);
            }
          }
          row = matmul_at(row, x_row);
        }
        of_x.move(E, x_step);
      }
    }
    of_w = matmul_at(of_w, long(step - 8) * w_row);
    of_x.move(step - 8, x_step);
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
  // Here, as it would take registers in the loop.
  c += matrix * R * columns * size_of(matmul_type);
  for (uint n = simd * 32 + lane; n < R * 32; n += simds * 32) {
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

#define INSTANTIATE_GEMV_COLUMNS(R, L, E)               \
  template [[host_name("gemv_columns_" #R)]] [[kernel]] \
  decltype(gemv_columns<R, L, E>) gemv_columns<R, L, E>;

// Apple's GPUs have fewer registers.
#ifdef __CUDACC__
INSTANTIATE_GEMV_COLUMNS(1, 8, 4)
INSTANTIATE_GEMV_COLUMNS(2, 8, 4)
INSTANTIATE_GEMV_COLUMNS(3, 8, 4)
INSTANTIATE_GEMV_COLUMNS(4, 8, 4)
INSTANTIATE_GEMV_COLUMNS(5, 4, 4)
INSTANTIATE_GEMV_COLUMNS(6, 4, 4)
INSTANTIATE_GEMV_COLUMNS(7, 4, 4)
INSTANTIATE_GEMV_COLUMNS(8, 4, 4)
#else
INSTANTIATE_GEMV_COLUMNS(1, 2, 2)
INSTANTIATE_GEMV_COLUMNS(2, 2, 2)
INSTANTIATE_GEMV_COLUMNS(3, 2, 2)
INSTANTIATE_GEMV_COLUMNS(4, 2, 2)
INSTANTIATE_GEMV_COLUMNS(5, 2, 2)
INSTANTIATE_GEMV_COLUMNS(6, 2, 2)
INSTANTIATE_GEMV_COLUMNS(7, 2, 2)
INSTANTIATE_GEMV_COLUMNS(8, 1, 1)
#endif
