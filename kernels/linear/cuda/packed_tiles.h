// Copyright (c) 2026 mlx_norms contributors
//
// What is packed in a quantized matrix, and the rows that it is multiplied by,
// as words of tiles for matrix units (kernels/common/matrix_units.h). Bits in
// the highest digits of a 16-bit float's fraction are 1 + q / 2^bits, and need
// no conversion.

#pragma once

#include "kernels/common/matrix_units.h"
#include "kernels/linear/normed_rows.h"
#include "kernels/linear/weights.h"

constant int quantized_type = linear_x_flags & 3;
constant int tile_type = quantized_type == kFloat16 ? kFloat16 : kBFloat16;
// bfloat16's fraction has no room for 8 bits: those are two digits, of 7 bits
// and of one, the last of the exponent's.
constant bool two_digits = linear_bits == 8 && tile_type == kBFloat16;
constant int digit_bits = two_digits ? 7 : linear_bits;
// A float is the sum of three bfloat16.
constant int x_parts = quantized_type == kFloat32 ? 3 : 1;
// A lane's words of a line's group, and groups, in a step of 128 bytes, of
// which it has eight words.
constant int group_words = linear_group_size * linear_bits / 128;
constant int step_groups = group_words == 0 ? 0 : 8 / group_words;
constant int word_elements = linear_bits == 8 ? 4 : 8;
// Words whose elements of x are loaded at once.
constant int words_loaded = linear_bits == 8 && x_parts == 1 ? 2 : 1;

// A digit's first bit in a float.
constant int digit_place = (tile_type == kFloat16 ? 10 : 7) - digit_bits;

// The bits of both of a word, of the first digit and the second. The compiler
// does not know that `zero` is, and keeps them in registers.
inline uint2 digits_mask(uint zero) {
  uint mask = ((1u << digit_bits) - 1u) << digit_place;
  return uint2(mask | mask << 16 | zero, 0x00800080u | zero);
}

// One digit each of two elements of a word, `pair` and that plus half of the
// word's elements, as 1 + q / 2^digit_bits; the second digit as (1 + q) / 2.
inline uint digits_of(uint word, int pair, int digit, uint2 mask) {
  int from = pair * linear_bits;
  uint moved = from < digit_place ? word << (digit_place - from)
                                  : word >> (from - digit_place);
  uint one = tile_type == kFloat16 ? 0x3c003c00u : 0x3f803f80u;
  return digit == 0 ? (moved & mask.x) | one : (moved & mask.y) | 0x3f003f00u;
}

// Words of a tile of lines: two pairs' digits of lines row and row + 8.
inline uint4 digits_tile(uint low, uint high, int t, int digit, uint2 mask) {
  return uint4(
      digits_of(low, 2 * t, digit, mask),
      digits_of(high, 2 * t, digit, mask),
      digits_of(low, 2 * t + 1, digit, mask),
      digits_of(high, 2 * t + 1, digit, mask));
}

// Words of the tiles' elements of x for words_loaded ones of w: word `pair` of
// a part has elements `pair` and that plus half of word_elements, of the second
// of two words from pair 2 on.
inline void
load_pairs(RowIn row, bool there, uint at, int length, thread uint* pairs) {
  constexpr int kParts = 3;
  float v[8];
  uint words[4];
  for (int k = 0; k < 4; ++k) {
    words[k] = 0;
  }
  if (quantized_type != kFloat32 && row.vectors) {
    if (there) {
      uint4 bits = *(device const uint4*)(row.data + ulong(at) * 2);
      words[0] = bits.x;
      words[1] = bits.y;
      words[2] = bits.z;
      words[3] = bits.w;
    }
  } else {
    clear<8>(v);
    if (there && words_loaded * word_elements == 8) {
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
    if (quantized_type != kFloat32) {
      int low = words_loaded == 2 ? pair / 2 * 2 : pair / 2;
      int high = low + word_elements / 4;
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
