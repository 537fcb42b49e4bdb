// Copyright (c) 2026 mlx_norms contributors
//
// A quantized product of up to 16 rows on matrix units, which multiply what is
// packed in w. A group's scale and bias come after its sums, and the sums of x
// alone from a tile of ones:
//
//   y = sum over groups of (scale * sum(q x) + bias * sum(x))
//
// A threadgroup multiplies 32 lines of w, each of which gives one output, by
// C * 8 rows. Its SIMD-groups share the depth, 128 bytes of each line at a
// time, whatever the rows are, so rows are batch-invariant.

#include "kernels/linear/cuda/staged_lines.h"

constant constexpr int kTiles = kTileLines / 16; // of lines

// Adds a word of each line, times the elements of x that belong to it, to the
// sums of a group: of each digit, and of ones.
template <int C>
inline void multiply_words(
    thread const uint* words, // of line i at 8 i
    uint2 mask,
    thread const uint* pairs, // of tile c of rows at 12 c
    thread float* dots,
    thread float* of_ones,
    uint lane) {
  uint one = tile_type == kFloat16 ? 0x3c003c00u : 0x3f803f80u;
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < C * 3; ++i) {
      int c = i / 3, part = i % 3;
      if (4 * t < word_elements && part < x_parts) {
        thread const uint* of_x = pairs + c * 12 + part * 4 + 2 * t;
        uint2 b = uint2(of_x[0], of_x[1]);
        uint4 ones = uint4(one, one, one, one);
        multiply_tile(tile_type, ones, b, of_ones + c * 4, lane);
        for (int m = 0; m < kTiles; ++m) {
          uint low = words[m * 16], high = words[m * 16 + 8];
          thread float* of_tile = dots + (m * C + c) * 8;
          uint4 a = digits_tile(low, high, t, 0, mask);
          multiply_tile(tile_type, a, b, of_tile, lane);
          if (two_digits) {
            a = digits_tile(low, high, t, 1, mask);
            multiply_tile(tile_type, a, b, of_tile + 4, lane);
          }
        }
      }
    }
  }
}

// Adds a group's sums for line row or row + 8 of a tile, the first or the
// second two of a lane's, to those of all groups over the digits' levels:
//
//   scale (dots - ones) + zero / levels ones
//
// where two digits' dots are those of the first and twice the second's, and
// their ones are two.
template <int C>
inline void add_group(
    float scale,
    float zero,
    int half_of_tile,
    thread const float* dots, // of tile c of rows at 8 c
    thread const float* of_ones,
    thread float* sums) {
  float levels = float(1 << digit_bits);
  float digits = two_digits ? 2.0f : 1.0f;
  float of_one = fma(zero, 1.0f / levels, -scale * digits);
  for (int i = 0; i < C * 2; ++i) {
    int c = i / 2, e = half_of_tile * 2 + i % 2;
    float dot = dots[c * 8 + e];
    if (two_digits) {
      dot = fma(2.0f, dots[c * 8 + 4 + e], dot);
    }
    float more = fma(of_one, of_ones[c * 4 + e], sums[c * 4 + e]);
    sums[c * 4 + e] = fma(scale, dot, more);
  }
}

template <int C, int S> // tiles of 8 rows; SIMD-groups
[[kernel, max_total_threads_per_threadgroup(32 * S)]] void quantized_tiles(
    device const uchar* x [[buffer]],
    device const uchar* residual
    [[buffer, function_constant(linear_has_residual)]],
    device const uchar* w [[buffer]],
    device const uchar* scales [[buffer]],
    device const uchar* zeros [[buffer]], // MLX's biases, one per group
    device uchar* y [[buffer]],
    constant const int* layouts [[buffer]],
    constant const uint& lines [[buffer]],
    constant const uint& rows [[buffer]],
    constant const uint& length [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[S][kTiles * C][32];
  uint row = lane / 4, pair = lane % 4;
  uint first = group.x * kTileLines, first_row = group.y * (C * 8);
  // The last row stands in for missing ones, whose sums are dropped.
  RowIn of_x[C];
  for (int c = 0; c < C; ++c) {
    uint r = min(first_row + c * 8 + row, rows - 1);
    assign(of_x[c], row_in(x, linear_x_flags, layouts, r, int(length)));
  }
  uint steps = (length / uint(word_elements) + 31) / 32;
  StagedLines<S> staged;
  staged.start_lines(w, first, lines, length, simd, lane);
  GroupsAhead<S> groups_ahead;
  groups_ahead.start_groups(scales, zeros, first, lines, length, simd, row);
  uint2 mask = digits_mask(length >> 31);

  float sums[kTiles * C * 4];
  for (int i = 0; i < kTiles * C * 4; ++i) {
    sums[i] = 0.0f;
  }
  for (uint step = simd; step < steps; step += S) {
    staged.arrive_words();
    groups_ahead.arrive_groups(step);
    uint words[kLaneLines * 8];
    uint pairs[C * 12];
    float dots[kTiles * C * 8]; // of both digits
    float of_ones[C * 4];
    for (int j = 0; j < 8; ++j) {
      int g = j / group_words;
      bool there = groups_ahead.has_group(g);
      if (j % group_words == 0) {
        staged.words_of_group(step, g, there, words);
        for (int i = 0; i < kTiles * C * 8; ++i) {
          dots[i] = 0.0f;
        }
        for (int i = 0; i < C * 4; ++i) {
          of_ones[i] = 0.0f;
        }
      }
      uint word = step * 32 + (uint(g) * 4 + pair) * uint(group_words) +
          uint(j % group_words);
      if (j % words_loaded == 0) {
        for (int c = 0; c < C; ++c) {
          load_pairs(
              of_x[c],
              there,
              word * uint(word_elements),
              int(length),
              pairs + c * 12);
        }
      }
      multiply_words<C>(
          words + j % group_words,
          mask,
          pairs + j % words_loaded * 2,
          dots,
          of_ones,
          lane);
      if ((j + 1) % group_words == 0) {
        for (int i = 0; i < kLaneLines; ++i) {
          float2 v = groups_ahead.scale_and_zero(i, g);
          int tile = i / 2 * C;
          add_group<C>(
              v.x, v.y, i % 2, dots + tile * 8, of_ones, sums + tile * 4);
        }
      }
    }
    staged.copy_next();
  }

  for (int t = 0; t < kTiles * C; ++t) {
    partial[simd][t][lane] = take(sums + t * 4);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd < uint(kTiles * C)) {
    float4 of_all = partial[0][simd][lane];
    for (int s = 1; s < S; ++s) {
      of_all += partial[s][simd][lane];
    }
    float total[4];
    put(total, of_all);
    float levels = float(1 << digit_bits);
    for (uint e = 0; e < 4; ++e) {
      uint line = first + simd / C * 16 + row + e / 2 * 8;
      uint r = first_row + simd % C * 8 + pair * 2 + e % 2;
      if (line < lines && r < rows) {
        float v = total[e] * levels;
        long size = size_of(quantized_type);
        if (linear_has_residual) {
          RowIn of_row =
              row_in(residual, linear_residual_flags, layouts, r, int(lines));
          v = round_to(float4(v, v, v, v), quantized_type).x +
              load_element(of_row, int(line));
        }
        store(y + (ulong(r) * lines + line) * size, quantized_type, v);
      }
    }
  }
}

#define INSTANTIATE_QUANTIZED_TILES(C, S)                         \
  template [[host_name("quantized_tiles_" #C "_" #S)]] [[kernel]] \
  decltype(quantized_tiles<C, S>) quantized_tiles<C, S>;

INSTANTIATE_QUANTIZED_TILES(1, 4)
INSTANTIATE_QUANTIZED_TILES(1, 8)
INSTANTIATE_QUANTIZED_TILES(1, 16)
INSTANTIATE_QUANTIZED_TILES(2, 4)
INSTANTIATE_QUANTIZED_TILES(2, 8)
INSTANTIATE_QUANTIZED_TILES(2, 16)
