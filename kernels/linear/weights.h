// Copyright (c) 2026 mlx_norms contributors
//
// How the weights of projections are stored: as arrays of x's dtype, or in
// MLX's affine quantization: a weight is scale * q + bias, with a scale and a
// bias per group of a row's elements, and q packed from the low bits up.

#pragma once

#include "kernels/common/rows.h"

constant int linear_bits [[function_constant]];       // of q; 0: not packed
constant int linear_group_size [[function_constant]]; // 0: not packed
constant bool linear_aligned [[function_constant]];   // vectors are aligned

constant bool linear_quantized = linear_bits != 0;

// The bits of element i, of `bytes` bytes; zero past the row's end.
inline uint
element_bits(device const uchar* row, int bytes, int i, int length) {
  if (!in_row(i, 1, length)) {
    return 0u;
  }
  return bytes == 4 ? ((device const uint*)row)[i]
                    : uint(((device const ushort*)row)[i]);
}

// The 16 bytes of the N elements that start at element i of an unpacked row.
// Vectors are found by an index of 32 bits, as in read_at().
template <int N>
inline uint4
fetch_dense(device const uchar* weights, uint row, int i, int length) {
  constexpr int bytes = 16 / N;
  if (linear_aligned) { // then a vector is either in the row or past its end
    if (whole || i < length) {
      uint at = row * (uint(length) / N) + uint(i) / N;
      return ((device const uint4*)weights)[at];
    }
    return uint4(0, 0, 0, 0);
  }
  weights += ulong(row) * uint(length) * uint(bytes);
  uint words[4];
  for (int k = 0; k < 4; ++k) {
    words[k] = N == 4 ? element_bits(weights, 4, i + k, length)
                      : element_bits(weights, 2, i + 2 * k, length) |
            element_bits(weights, 2, i + 2 * k + 1, length) << 16;
  }
  return uint4(words[0], words[1], words[2], words[3]);
}

// Vector i of 16 packed weights.
inline uint4 fetch_packed(device const uchar* weights, uint i) {
  if (!linear_aligned) { // only to words of 32 bits
    device const uint* words = (device const uint*)weights;
    return linear_bits == 8 ? uint4(
                                  words[4 * i],
                                  words[4 * i + 1],
                                  words[4 * i + 2],
                                  words[4 * i + 3])
                            : uint4(words[2 * i], words[2 * i + 1], 0, 0);
  }
  return linear_bits == 8
      ? ((device const uint4*)weights)[i]
      : uint4(((device const uint2*)weights)[i], uint2(0, 0));
}

// Value `at` of q in packed words, as 1 + q / 2^bits: in a float's highest
// digits it needs no conversion.
inline float one_plus_q(thread const uint* words, int at) {
  if (linear_bits == 8) {
    uint q = (words[at / 4] >> (8 * (at % 4))) & 0xffu;
    return as_type<float>(0x3f800000u | q << 15);
  }
  uint word = words[at / 8];
#ifdef __CUDACC__
  // The second-highest byte of 0x3f000000 is replaced by one of these.
  uint bytes = (at % 2 == 1 ? word >> 1 : word << 3) & 0x78787878u;
  uint selected = 0x4055u | uint(at % 8 / 2) << 8;
  return as_type<float>(permute_bytes(bytes | 0x80808080u, 0x3fu, selected));
#else
  // A half takes half a register, and a multiply-add reads it as a float.
  int up = 6 - 4 * (at % 4);
  uint digits = (up > 0 ? word << up : word >> -up) & 0x03c003c0u;
  half2 both = as_type<half2>(digits | 0x3c003c00u);
  return float(at % 8 < 4 ? both.x : both.y);
#endif
}

// P values of a fetched vector, starting at `first`: weights of an array, or q
// of packed ones.
template <int N, int P>
inline void unpack_weights(uint4 bits, int type, int first, thread float* v) {
  if (N < 16) {
    unpack<N>(bits, type, v);
    return;
  }
  uint words[4] = {bits.x, bits.y, bits.z, bits.w};
  for (int j = 0; j < P; ++j) {
    v[j] = one_plus_q(words, first + j);
  }
}

// What a group's weights are made with: scale * q + bias.
struct Affine {
  float scale;
  float bias;
};

inline Affine load_affine(
    device const uchar* scales,
    device const uchar* biases,
    int type,
    uint group) {
  ulong at = ulong(group) * uint(size_of(type));
  return Affine{load(scales + at, type), load(biases + at, type)};
}
