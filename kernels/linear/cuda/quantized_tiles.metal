// Copyright (c) 2026 mlx_norms contributors
//
// A quantized product of up to 16 rows on matrix units, which multiply what is
// packed in w: bits in the highest digits of a 16-bit float's fraction are
// 1 + q / 2^bits and need no conversion. A group's scale and bias come after
// its sums, and the sums of x alone from a tile of ones:
//
//   y = sum over groups of (scale * sum(q x) + bias * sum(x))
//
// A threadgroup multiplies M * 16 lines of w, each of which gives one output,
// by C * 8 rows. Its SIMD-groups, and those of all threadgroups of a cluster,
// share the depth, 128 bytes of each line at a time. How they do depends only
// on the shape of w, so rows are batch-invariant.

#include "kernels/common/matrix_units.h"
#include "kernels/linear/normed_rows.h"
#include "kernels/linear/weights.h"

constant int quantized_type = linear_x_flags & 3;
constant int tile_type = quantized_type == kFloat16 ? kFloat16 : kBFloat16;
// bfloat16's fraction has no room for 8 bits: those are two digits of 4.
constant int digit_bits =
    linear_bits == 8 && quantized_type == kFloat16 ? 8 : 4;
constant bool two_digits = linear_bits != digit_bits;
// A float is the sum of three bfloat16.
constant int x_parts = quantized_type == kFloat32 ? 3 : 1;
// A lane's words of a line's group, and groups, in a step of eight words.
constant int group_words = linear_group_size * linear_bits / 128;
constant int step_groups = group_words == 0 ? 0 : 8 / group_words;
constant int word_elements = linear_bits == 8 ? 4 : 8;

// One digit each of two elements of a word, `pair` and that plus half of the
// word's elements, as 1 + q / 2^digit_bits.
inline uint digits_of(uint word, int pair, int digit) {
  int from = pair * linear_bits + digit * digit_bits;
  int to = (tile_type == kFloat16 ? 10 : 7) - digit_bits;
  uint moved = from < to ? word << (to - from) : word >> (from - to);
  uint mask = ((1u << digit_bits) - 1u) << to;
  uint one = tile_type == kFloat16 ? 0x3c00u : 0x3f80u;
  return (moved & (mask | mask << 16)) | one | one << 16;
}

// A lane's words of a group, of which each lane's are aligned if all rows are.
inline void load_words(device const uchar* w, uint at, thread uint* to) {
  device const uint* words = (device const uint*)w + at;
  for (int k = 0; k < 8; k += 4) {
    if (linear_aligned && k < group_words && group_words % 4 == 0) {
      uint4 v = *(device const uint4*)(words + k);
      to[k] = v.x;
      to[k + 1] = v.y;
      to[k + 2] = v.z;
      to[k + 3] = v.w;
    }
  }
  if (linear_aligned && group_words == 2) {
    uint2 v = *(device const uint2*)words;
    to[0] = v.x;
    to[1] = v.y;
  }
  for (int k = 0; k < 8; ++k) {
    if (k < group_words && (!linear_aligned || group_words == 1)) {
      to[k] = words[k];
    }
  }
}

// The scales or biases of a step's groups: the bits of 16-bit ones.
struct GroupValues {
  uint words[4];
};

inline GroupValues
load_groups(device const uchar* values, uint at, uint count) {
  GroupValues v;
  for (int k = 0; k < 4; ++k) {
    v.words[k] = 0;
  }
  device const ushort* from = (device const ushort*)values + at;
  if (quantized_type == kFloat32) { // loaded as they are used
    return v;
  }
  if (whole && linear_aligned && step_groups > 1) {
    if (step_groups == 8) {
      uint4 bits = *(device const uint4*)from;
      v.words[0] = bits.x;
      v.words[1] = bits.y;
      v.words[2] = bits.z;
      v.words[3] = bits.w;
    } else if (step_groups == 4) {
      uint2 bits = *(device const uint2*)from;
      v.words[0] = bits.x;
      v.words[1] = bits.y;
    } else {
      v.words[0] = *(device const uint*)from;
    }
    return v;
  }
  for (int g = 0; g < 8; ++g) {
    if (g < step_groups && uint(g) < count) {
      v.words[g / 2] |= uint(from[g]) << (g % 2 * 16);
    }
  }
  return v;
}

inline float group_value(
    thread const GroupValues& v,
    device const uchar* values,
    uint at,
    int g,
    uint count) {
  if (quantized_type == kFloat32) {
    return uint(g) < count ? ((device const float*)values)[at + uint(g)] : 0.0f;
  }
  uint bits = v.words[g / 2] >> (g % 2 * 16);
  return widen(uint2(bits & 0xffffu, 0), quantized_type).x;
}

// Words of the tiles' elements of x for one of w: word `pair` of a part has
// elements `pair` and that plus half of word_elements.
inline void
load_pairs(RowIn row, bool there, uint at, int length, thread uint* pairs) {
  constexpr int kParts = 3;
  float v[8];
  uint words[4];
  for (int k = 0; k < 4; ++k) {
    words[k] = 0;
  }
  if (quantized_type != kFloat32 && row.vectors) {
    if (there && word_elements == 8) {
      uint4 bits = *(device const uint4*)(row.data + ulong(at) * 2);
      words[0] = bits.x;
      words[1] = bits.y;
      words[2] = bits.z;
      words[3] = bits.w;
    } else if (there) {
      uint2 bits = *(device const uint2*)(row.data + ulong(at) * 2);
      words[0] = bits.x;
      words[1] = bits.y;
    }
  } else {
    clear<8>(v);
    if (there && word_elements == 8) {
      read<8>(row, int(at), length, v);
    } else if (there) {
      read<4>(row, int(at), length, v);
    }
    if (quantized_type != kFloat32) {
      uint4 bits = pack(v, quantized_type);
      words[0] = bits.x;
      words[1] = bits.y;
      words[2] = bits.z;
      words[3] = bits.w;
    }
  }
  for (int pair = 0; pair < 4; ++pair) {
    int low = pair / 2, high = low + word_elements / 4;
    if (quantized_type != kFloat32) {
      pairs[pair] = pair % 2 == 0 ? low_halves(words[low], words[high % 4])
                                  : high_halves(words[low], words[high % 4]);
    } else {
      float a = v[pair], b = v[(pair + word_elements / 2) % 8];
      for (int part = 0; part < kParts; ++part) {
        uint of_a = as_type<uint>(a), of_b = as_type<uint>(b);
        pairs[part * 4 + pair] = high_halves(of_a, of_b);
        a = is_finite(a) ? a - as_type<float>(of_a & 0xffff0000u) : 0.0f;
        b = is_finite(b) ? b - as_type<float>(of_b & 0xffff0000u) : 0.0f;
      }
    }
  }
}

template <int M, int C, int S> // tiles of lines, of rows; SIMD-groups
[[kernel, max_total_threads_per_threadgroup(32 * S)]] void quantized_tiles(
    device const uchar* x [[buffer(0)]],
    device const uchar* residual
    [[buffer(1), function_constant(linear_has_residual)]],
    device const uchar* w [[buffer(2)]],
    device const uchar* scales [[buffer(3)]],
    device const uchar* zeros [[buffer(4)]], // MLX's biases, one per group
    device uchar* y [[buffer(5)]],
    constant const int* linear_x_layout [[buffer(6)]],
    constant const int* linear_residual_layout
    [[buffer(7), function_constant(linear_has_residual)]],
    constant const uint& lines [[buffer(8)]],
    constant const uint& rows [[buffer(9)]],
    constant const uint& length [[buffer(10)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[S][M * C][32];
  uint row = lane / 4, pair = lane % 4;
  uint first = group.x / uint(cluster) * (M * 16);
  uint first_row = group.y * (C * 8);
  RowIn of_x[C];
  bool has_row[C];
  for (int c = 0; c < C; ++c) {
    uint r = first_row + c * 8 + row;
    has_row[c] = r < rows;
    assign(
        of_x[c],
        row_in(
            x, linear_x_flags, linear_x_layout, min(r, rows - 1), int(length)));
  }
  uint line_words = length / uint(word_elements);
  uint groups = length / uint(linear_group_size);
  uint line_of[2 * M]; // lines row and row + 8 of each tile
  for (int i = 0; i < 2 * M; ++i) {
    line_of[i] = min(first + i * 8 + row, lines - 1);
  }

  float sums[M * C * 4];
  for (int i = 0; i < M * C * 4; ++i) {
    sums[i] = 0.0f;
  }
  uint steps = (line_words + 31) / 32;
  uint parts = uint(cluster) * S;
  for (uint step = group.x % uint(cluster) * S + simd; step < steps;
       step += parts) {
    uint first_word = step * 32 + pair * uint(group_words);
    uint first_group = step * uint(step_groups);
    uint groups_left = groups - first_group;
    uint words[2 * M * 8];
    GroupValues scales_of[2 * M], zeros_of[2 * M];
    for (int i = 0; i < 2 * M; ++i) {
      for (int j = 0; j < 8; ++j) {
        words[i * 8 + j] = 0;
      }
      for (int j = 0; j < 8; ++j) {
        bool first_of_group = j % group_words == 0;
        if (first_of_group && (whole || uint(j / group_words) < groups_left)) {
          uint at = line_of[i] * line_words + first_word + j * 4;
          load_words(w, at, words + i * 8 + j);
        }
      }
      uint at = line_of[i] * groups + first_group;
      scales_of[i] = load_groups(scales, at, groups_left);
      zeros_of[i] = load_groups(zeros, at, groups_left);
    }

    float dots[M * C * 8]; // of both digits
    float of_ones[C * 4];
    for (int j = 0; j < 8; ++j) {
      int g = j / group_words;
      if (j % group_words == 0) {
        for (int i = 0; i < M * C * 8; ++i) {
          dots[i] = 0.0f;
        }
        for (int i = 0; i < C * 4; ++i) {
          of_ones[i] = 0.0f;
        }
      }
      uint k = (first_word + g * (3 * group_words) + j) * uint(word_elements);
      bool there = whole || uint(g) < groups_left;
      uint pairs[C * 12];
      for (int c = 0; c < C; ++c) {
        load_pairs(
            of_x[c], there && has_row[c], k, int(length), pairs + c * 12);
      }
      for (int t = 0; t < 2; ++t) {
        if (2 * t < word_elements / 2) {
          uint one = tile_type == kFloat16 ? 0x3c003c00u : 0x3f803f80u;
          for (int c = 0; c < C; ++c) {
            for (int part = 0; part < 3; ++part) {
              if (part < x_parts) {
                thread const uint* of_x_part =
                    pairs + c * 12 + part * 4 + 2 * t;
                uint2 b = uint2(of_x_part[0], of_x_part[1]);
                multiply_tile(
                    tile_type,
                    uint4(one, one, one, one),
                    b,
                    of_ones + c * 4,
                    lane);
                for (int m = 0; m < M; ++m) {
                  uint low = words[m * 16 + j], high = words[m * 16 + 8 + j];
                  for (int d = 0; d < 2; ++d) {
                    if (d == 0 || two_digits) {
                      uint4 a = uint4(
                          digits_of(low, 2 * t, d),
                          digits_of(high, 2 * t, d),
                          digits_of(low, 2 * t + 1, d),
                          digits_of(high, 2 * t + 1, d));
                      multiply_tile(
                          tile_type,
                          a,
                          b,
                          dots + (m * C + c) * 8 + d * 4,
                          lane);
                    }
                  }
                }
              }
            }
          }
        }
      }
      if ((j + 1) % group_words == 0) {
        float levels = float(1 << digit_bits);
        for (int i = 0; i < 2 * M; ++i) {
          uint at = line_of[i] * groups + first_group;
          float scale = group_value(scales_of[i], scales, at, g, groups_left);
          float zero = group_value(zeros_of[i], zeros, at, g, groups_left);
          for (int c = 0; c < C; ++c) {
            for (int n = 0; n < 2; ++n) {
              int e = i % 2 * 2 + n; // of a tile's sums
              thread const float* of_tile = dots + (i / 2 * C + c) * 8;
              float ones = of_ones[c * 4 + e];
              float dot = of_tile[e] - ones;
              if (two_digits) {
                dot = fma(levels, of_tile[4 + e] - ones, dot);
              }
              int of_sum = (i / 2 * C + c) * 4 + e;
              float more = fma(zero / levels, ones, sums[of_sum]);
              sums[of_sum] = fma(scale, dot, more);
            }
          }
        }
      }
    }
  }

  for (int t = 0; t < M * C; ++t) {
    partial[simd][t][lane] = take(sums + t * 4);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  bool has_sums = simd < M * C;
  float total[4];
  if (has_sums) {
    float4 of_all = partial[0][simd][lane];
    for (int s = 1; s < S; ++s) {
      of_all += partial[s][simd][lane];
    }
    put(total, of_all);
  }
  if (add_up_cluster(has_sums, total) && has_sums) {
    float levels = float(1 << digit_bits);
    for (uint e = 0; e < 4; ++e) {
      uint line = first + simd / C * 16 + row + e / 2 * 8;
      uint r = first_row + simd % C * 8 + pair * 2 + e % 2;
      if (line < lines && r < rows) {
        float v = total[e] * levels;
        long size = size_of(quantized_type);
        if (linear_has_residual) {
          RowIn of_row = row_in(
              residual,
              linear_residual_flags,
              linear_residual_layout,
              r,
              int(lines));
          v = round_to(float4(v, v, v, v), quantized_type).x +
              load_element(of_row, int(line));
        }
        store(y + (ulong(r) * lines + line) * size, quantized_type, v);
      }
    }
  }
}

#define INSTANTIATE_QUANTIZED_TILES(M, C, S)                             \
  template [[host_name("quantized_tiles_" #M "_" #C "_" #S)]] [[kernel]] \
  decltype(quantized_tiles<M, C, S>) quantized_tiles<M, C, S>;

INSTANTIATE_QUANTIZED_TILES(1, 1, 4)
INSTANTIATE_QUANTIZED_TILES(1, 1, 8)
INSTANTIATE_QUANTIZED_TILES(1, 1, 16)
INSTANTIATE_QUANTIZED_TILES(2, 1, 4)
INSTANTIATE_QUANTIZED_TILES(2, 1, 8)
INSTANTIATE_QUANTIZED_TILES(2, 1, 16)
INSTANTIATE_QUANTIZED_TILES(1, 2, 4)
INSTANTIATE_QUANTIZED_TILES(1, 2, 8)
INSTANTIATE_QUANTIZED_TILES(1, 2, 16)
INSTANTIATE_QUANTIZED_TILES(2, 2, 4)
INSTANTIATE_QUANTIZED_TILES(2, 2, 8)
