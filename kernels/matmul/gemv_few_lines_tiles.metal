// Copyright (c) 2026 mlx_norms contributors
//
// gemv_line_tiles where there are so few groups that waiting counts more than
// the memory's speed: a group has more SIMD-groups, and a lane reads what it
// multiplies itself, 64 bytes of a line at once with those beside it.

#include "kernels/matmul/tiles.h"

[[kernel, max_total_threads_per_threadgroup(512)]] void gemv_few_lines_tiles(
    device const uchar* x [[buffer(0)]],
    device const uchar* w [[buffer(1)]],
    device uchar* c [[buffer(2)]],
    constant const uint& lines [[buffer(3)]],
    constant const uint& depth [[buffer(4)]],
    constant const int& x_row [[buffer(5)]], // elements from each to the next
    constant const int& x_step [[buffer(6)]],
    constant const int& w_line [[buffer(7)]],
    constant const uint& c_row [[buffer(8)]],
    constant const uint& c_column [[buffer(9)]],
    constant const int& x_matrix [[buffer(10)]],
    constant const int& w_matrix [[buffer(11)]],
    constant const uint& rows [[buffer(12)]],
    uint group [[threadgroup_position_in_grid]],
    uint simds [[simdgroups_per_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[16][32];
  uint blocks = (lines + 15) / 16;
  uint matrix = matrix_of(group, blocks);
  uint first = (group - matrix * blocks) * 16;
  uint row = lane / 4, pair = lane % 4;
  x = matmul_at(x, long(matrix) * x_matrix + long(min(row, rows - 1)) * x_row);
  c += ulong(matrix) * rows * lines * size_of(matmul_type);

  long of_line = long(matrix) * w_matrix + long(first + row) * w_line;
  device const uchar* of_low = matmul_at(w, of_line + long(pair) * 8);
  device const uchar* of_high = matmul_at(of_low, long(w_line) * 8);
  bool low_there = first + row < lines, high_there = first + row + 8 < lines;
  // Of two tiles at once: a sum waits for the one before it.
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  float others[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (uint k = simd * 128; k < depth; k += simds * 128) {
    uint4 low[4], high[4], of_x[4];
    for (int n = 0; n < 4; ++n) {
      uint at = k + uint(n) * 32;
      bool there = at + pair * 8 < depth;
      low[n] = high[n] = uint4(0, 0, 0, 0);
      if (there && low_there) {
        low[n] = *(device const uint4*)matmul_at(of_low, at);
      }
      if (there && high_there) {
        high[n] = *(device const uint4*)matmul_at(of_high, at);
      }
    }
    for (int n = 0; n < 4; ++n) {
      uint at = k + uint(n) * 32 + pair * 8;
      of_x[n] = row_vector(x, x_step, at, depth, row < rows);
    }
    for (int n = 0; n < 4; ++n) {
      uint4 a = low[n], b = high[n];
      multiply_tile(uint4(a.x, b.x, a.y, b.y), of_x[n].xy, sums, lane);
      multiply_tile(uint4(a.z, b.z, a.w, b.w), of_x[n].zw, others, lane);
    }
  }

  float4 both = take(sums);
  both += take(others);
  partial[simd][lane] = both;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    float4 total = partial[0][lane];
    for (uint s = 1; s < simds; ++s) {
      total += partial[s][lane];
    }
    write_line_tile(c, total, first, lines, rows, c_row, c_column, lane);
  }
}
