// Copyright (c) 2026 mlx_norms contributors
//
// gemv_lines on matrix units: a threadgroup multiplies 16 lines by up to 8
// rows. Its SIMD-groups share the depth. Each reads 16 contiguous vectors of
// every line and passes them through threadgroup memory to the lanes that
// multiply them.

#include "kernels/matmul/cuda/tiles.h"

// Where a line's vector is staged: the eight lanes that read or write at once
// use different banks.
inline uint tile_place(uint line, uint chunk) {
  return line * 16 + (chunk ^ (line % 2 * 4));
}

template <int E, int S> // elements per vector; SIMD-groups
[[kernel, max_total_threads_per_threadgroup(32 * S)]] void gemv_line_tiles(
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
    constant const uint& rows [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup uint4 staged[S][256];
  uint blocks = (lines + 15) / 16;
  uint matrix = matrix_of(group, blocks);
  uint first = (group - matrix * blocks) * 16;
  uint row = lane / 4, pair = lane % 4;
  x = matmul_at(x, long(matrix) * x_matrix);
  w = matmul_at(w, long(matrix) * w_matrix + long(first) * w_line);
  c += ulong(matrix) * rows * lines * size_of(matmul_type);

  // A load covers two lines, a multiplication all 16.
  uint odd = lane / 16, chunk = lane % 16;
  device const uchar* of_row = matmul_at(x, long(min(row, rows - 1)) * x_row);
  device const uchar* of_w = matmul_at(w, long(odd) * w_line + long(chunk) * E);
  int left = int(lines) - int(first + odd);
  long two_lines = long(w_line) * (2 * size_of(matmul_type));
  // Two sets of sums, because a multiplication waits for the sums of the last
  // one.
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  float others[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (uint k = simd * 16 * E; k < depth; k += S * 16 * E) {
    bool there = k + chunk * E < depth;
    device const uchar* from = matmul_at(of_w, k);
    uint4 bits[8];
    for (int i = 0; i < 8; ++i) {
      bits[i] = uint4(0, 0, 0, 0);
      if (there && 2 * i < left) {
        bits[i] = *(device const uint4*)from;
      }
      from += two_lines;
    }
    uint4 of_x[4];
    for (int n = 0; n < 4; ++n) {
      uint at = k + (uint(n) * 4 + pair) * E;
      of_x[n] = row_vector<E>(of_row, x_step, at, depth, row < rows);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < 8; ++i) {
      staged[simd][tile_place(2 * uint(i) + odd, chunk)] = bits[i];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int n = 0; n < 4; ++n) {
      uint4 low = staged[simd][tile_place(row, uint(n) * 4 + pair)];
      uint4 high = staged[simd][tile_place(row + 8, uint(n) * 4 + pair)];
      multiply_tile(
          matmul_type,
          uint4(low.x, high.x, low.y, high.y),
          of_x[n].xy,
          sums,
          lane);
      multiply_tile(
          matmul_type,
          uint4(low.z, high.z, low.w, high.w),
          of_x[n].zw,
          others,
          lane);
    }
  }

  simdgroup_barrier(mem_flags::mem_threadgroup);
  float4 both = take(sums);
  both += take(others);
  staged[simd][lane] = as_type<uint4>(both);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    float4 total = as_type<float4>(staged[0][lane]);
    for (int s = 1; s < S; ++s) {
      total += as_type<float4>(staged[s][lane]);
    }
    put(sums, total);
    for (uint i = 0; i < 4; ++i) {
      uint line = row + i / 2 * 8, r = pair * 2 + i % 2;
      if (first + line < lines && r < rows) {
        float v = finished(
            sums[i],
            matmul_at(x, long(r) * x_row),
            x_step,
            matmul_at(w, long(line) * w_line),
            1,
            depth);
        ulong at = ulong(r) * c_row + ulong(first + line) * c_column;
        store(c + at * size_of(matmul_type), matmul_type, v);
      }
    }
  }
}

#define INSTANTIATE_GEMV_LINE_TILES(E, S)                         \
  template [[host_name("gemv_line_tiles_" #E "_" #S)]] [[kernel]] \
  decltype(gemv_line_tiles<E, S>) gemv_line_tiles<E, S>;

INSTANTIATE_GEMV_LINE_TILES(4, 4)
INSTANTIATE_GEMV_LINE_TILES(4, 8)
INSTANTIATE_GEMV_LINE_TILES(8, 4)
INSTANTIATE_GEMV_LINE_TILES(8, 8)
