// Copyright (c) 2026 mlx_norms contributors
//
// Rows times a matrix that is stored transposed, like a linear layer's weight:
// each column of w, here called a line, is contiguous. A SIMD-group multiplies
// four lines by R rows, 32 lanes times eight elements at a time; `splits`
// adjacent SIMD-groups share four lines. The sums' order is the same on CUDA
// and on Metal, where fewer values are in registers at once.

#include "kernels/matmul/gemv.h"

template <int R, int V> // rows; on CUDA, steps that are loaded together
[[kernel, max_total_threads_per_threadgroup(256)]] void gemv_lines(
    device const uchar* x [[buffer(0)]],
    device const uchar* w [[buffer(1)]],
    device uchar* c [[buffer(2)]],
    constant const uint& lines [[buffer(3)]],
    constant const uint& depth [[buffer(4)]],
    constant const int& x_row [[buffer(5)]], // strides, in elements
    constant const int& x_step [[buffer(6)]],
    constant const int& w_line [[buffer(7)]],
    constant const uint& c_row [[buffer(8)]],
    constant const uint& c_column [[buffer(9)]],
    constant const int& x_matrix [[buffer(10)]],
    constant const int& w_matrix [[buffer(11)]],
    constant const uint& splits [[buffer(12)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float partial[8][R][4];
  uint line_sets = 8 / splits; // of four lines that `splits` SIMD-groups share
  uint blocks = (lines + 4 * line_sets - 1) / (4 * line_sets);
  ulong matrix = group / blocks;
  uint first = group % blocks * line_sets * 4;
  x = matmul_at(x, long(matrix) * x_matrix);
  w = matmul_at(w, long(matrix) * w_matrix);
  c += matrix * R * lines * size_of(matmul_type);

  device const uchar* of_w[4];
  for (int i = 0; i < 4; ++i) {
    uint line = min(first + simd / splits * 4 + i, lines - 1);
    of_w[i] = matmul_at(w, long(line) * w_line);
  }
  float sum[R][4];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) {
      sum[r][i] = 0.0f;
    }
  }
  uint step = splits * 256;
#ifdef __CUDACC__
  for (uint k = (simd % splits * 32 + lane) * 8; k < depth; k += V * step) {
    EightBits bits[V][4];
    for (int n = 0; n < V; ++n) {
      uint at = k + n * step;
      uint left = w_vectors && n == 0 ? 8 : elements_left(at, depth);
      for (int i = 0; i < 4; ++i) {
        bits[n][i] = eight_bits(matmul_at(of_w[i], at), w_vectors, 1, left);
      }
    }
    for (int n = 0; n < V; ++n) {
      float w_of[4][8];
      for (int i = 0; i < 4; ++i) {
        eight_values(bits[n][i], w_of[i]);
      }
      uint at = k + n * step;
      uint left = w_vectors && n == 0 ? 8 : elements_left(at, depth);
      for (int r = 0; r < R; ++r) {
        device const uchar* of_x =
            matmul_at(x, long(r) * x_row + long(at) * x_step);
        float v[8];
        eight_values(eight_bits(of_x, x_vectors, x_step, left), v);
        for (int j = 0; j < 8; ++j) {
          for (int i = 0; i < 4; ++i) {
            sum[r][i] = fma(w_of[i][j], v[j], sum[r][i]);
          }
        }
      }
    }
  }
#else
  uint k = (simd % splits * 32 + lane) * 8;
  for (int i = 0; i < 4; ++i) {
    of_w[i] = matmul_at(of_w[i], k);
  }
  device const uchar* of_x = matmul_at(x, long(k) * x_step);
  for (; k < depth; k += step) {
    for (int part = 0; part < 8; part += 4) {
      uint left = w_vectors ? 4 : elements_left(k + part, depth);
      float w_of[4][4];
      for (int i = 0; i < 4; ++i) {
        four_values(matmul_at(of_w[i], part), w_vectors, 1, left, w_of[i]);
      }
      device const uchar* row = matmul_at(of_x, long(part) * x_step);
      for (int r = 0; r < R; ++r) {
        float v[4];
        four_values(row, x_vectors, x_step, left, v);
        for (int j = 0; j < 4; ++j) {
          for (int i = 0; i < 4; ++i) {
            sum[r][i] = fma(w_of[i][j], v[j], sum[r][i]);
          }
        }
        row = matmul_at(row, x_row);
      }
    }
    for (int i = 0; i < 4; ++i) {
      of_w[i] = matmul_at(of_w[i], step);
    }
    of_x = matmul_at(of_x, long(step) * x_step);
  }
#endif

  // Each set of eight lanes gets the total of one line.
  for (int r = 0; r < R; ++r) {
    float low = split_sum(sum[r][0], sum[r][2], lane, 16);
    float high = split_sum(sum[r][1], sum[r][3], lane, 16);
    float total = split_sum(low, high, lane, 8);
    total += simd_shuffle_xor(total, 4);
    total += simd_shuffle_xor(total, 2);
    total += simd_shuffle_xor(total, 1);
    if (lane % 8 == 0) {
      partial[simd][r][lane / 16 * 2 + lane / 8 % 2] = total;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index < line_sets * R * 4) {
    uint line_set = thread_index / (R * 4);
    uint r = thread_index / 4 % R;
    uint line = first + line_set * 4 + thread_index % 4;
    float total = 0.0f;
    for (uint s = 0; s < splits; ++s) {
      total += partial[line_set * splits + s][r][thread_index % 4];
    }
    if (line < lines) {
      ulong at = ulong(r) * c_row + ulong(line) * c_column;
      store(c + at * size_of(matmul_type), matmul_type, total);
    }
  }
}

#define INSTANTIATE_GEMV_LINES(R, V)                  \
  template [[host_name("gemv_lines_" #R)]] [[kernel]] \
  decltype(gemv_lines<R, V>) gemv_lines<R, V>;

INSTANTIATE_GEMV_LINES(1, 2)
INSTANTIATE_GEMV_LINES(2, 2)
INSTANTIATE_GEMV_LINES(3, 1)
INSTANTIATE_GEMV_LINES(4, 1)
INSTANTIATE_GEMV_LINES(5, 1)
INSTANTIATE_GEMV_LINES(6, 1)
INSTANTIATE_GEMV_LINES(7, 1)
INSTANTIATE_GEMV_LINES(8, 1)
