// Copyright (c) 2026 mlx_norms contributors
//
// Rows times a matrix that is stored transposed, like a linear layer's weight:
// each column of w, here called a line, is contiguous. A SIMD-group multiplies
// four lines by R rows, 32 lanes times eight elements at a time; `splits`
// adjacent SIMD-groups share four lines. The sums' order is the same however
// many values are in registers at once.

#include "kernels/matmul/gemv.h"

// Rows; steps and elements of a step that are loaded together.
template <int R, int V, int E>
[[kernel, max_total_threads_per_threadgroup(256)]] void gemv_lines(
    device const uchar* x [[buffer]],
    device const uchar* w [[buffer]],
    device uchar* c [[buffer]],
    constant const uint& lines [[buffer]],
    constant const uint& depth [[buffer]],
    constant const int& x_row [[buffer]], // strides, in elements
    constant const int& x_step [[buffer]],
    constant const int& w_line [[buffer]],
    constant const uint& c_row [[buffer]],
    constant const uint& c_column [[buffer]],
    constant const int& x_matrix [[buffer]],
    constant const int& w_matrix [[buffer]],
    constant const uint& splits [[buffer]],
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

  uint k = (simd % splits * 32 + lane) * 8;
  Place of_x{x, 0};
  of_x.move(k, x_step);
  Place of_w[4];
  for (int i = 0; i < 4; ++i) {
    uint line = min(first + simd / splits * 4 + i, lines - 1);
    of_w[i].data = matmul_at(w, long(line) * w_line);
    of_w[i].index = 0;
    of_w[i].move(k, 1);
  }
  float sum[R][4];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) {
      sum[r][i] = 0.0f;
    }
  }
  uint step = splits * 256;
  for (; k < depth; k += V * step) {
    for (int part = 0; part < 8; part += E) {
      EightBits bits[V][4];
      uint left[V]; // elements of each step
      for (int n = 0; n < V; ++n) {
        uint at = n * step + part;
        left[n] = w_vectors && n == 0 ? E : elements_left(k + at, depth);
        for (int i = 0; i < 4; ++i) {
          bits[n][i] = load_bits<E>(of_w[i].at(at, 1), w_vectors, 1, left[n]);
        }
      }
      for (int n = 0; n < V; ++n) {
        float w_of[4][E];
        for (int i = 0; i < 4; ++i) {
          values_of<E>(bits[n][i], w_of[i]);
        }
        device const uchar* row = of_x.at(n * step + part, x_step);
        for (int r = 0; r < R; ++r) {
          float v[E];
          values_of<E>(load_bits<E>(row, x_vectors, x_step, left[n]), v);
          for (int j = 0; j < E; ++j) {
            for (int i = 0; i < 4; ++i) {
              sum[r][i] = fma(w_of[i][j], v[j], sum[r][i]);
            }
          }
          row = matmul_at(row, x_row);
        }
      }
    }
    for (int i = 0; i < 4; ++i) {
      of_w[i].move(V * step, 1);
    }
    of_x.move(V * step, x_step);
  }

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

#define INSTANTIATE_GEMV_LINES(R, V, E)               \
  template [[host_name("gemv_lines_" #R)]] [[kernel]] \
  decltype(gemv_lines<R, V, E>) gemv_lines<R, V, E>;

// Apple's GPUs have fewer registers.
#ifdef __CUDACC__
INSTANTIATE_GEMV_LINES(1, 2, 8)
INSTANTIATE_GEMV_LINES(2, 2, 8)
INSTANTIATE_GEMV_LINES(3, 1, 8)
INSTANTIATE_GEMV_LINES(4, 1, 8)
INSTANTIATE_GEMV_LINES(5, 1, 8)
INSTANTIATE_GEMV_LINES(6, 1, 8)
INSTANTIATE_GEMV_LINES(7, 1, 8)
INSTANTIATE_GEMV_LINES(8, 1, 8)
#else
INSTANTIATE_GEMV_LINES(1, 1, 4)
INSTANTIATE_GEMV_LINES(2, 1, 4)
INSTANTIATE_GEMV_LINES(3, 1, 4)
INSTANTIATE_GEMV_LINES(4, 1, 4)
INSTANTIATE_GEMV_LINES(5, 1, 4)
INSTANTIATE_GEMV_LINES(6, 1, 4)
INSTANTIATE_GEMV_LINES(7, 1, 4)
INSTANTIATE_GEMV_LINES(8, 1, 4)
#endif
