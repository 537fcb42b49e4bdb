// Copyright (c) 2026 mlx_norms contributors
//
// How the weights of projections are stored: arrays of x's dtype, or MLX's
// affine form, in which a weight is scale * q + bias, with a scale and a bias
// for each group of a row's elements and q packed from the low bits on.

#pragma once

#include "kernels/rows.h"

constant int linear_bits [[function_constant(72)]];       // of q; 0: an array
constant int linear_group_size [[function_constant(73)]]; // or 0
constant bool linear_aligned [[function_constant(74)]];   // vectors of rows

constant bool linear_quantised = linear_bits != 0;

// The bits of element i of a row, of so many bytes; zero past its end.
inline uint
element_bits(device const uchar* row, int bytes, int i, int length) {
  if (!in_row(i, 1, length)) {
    return 0u;
  }
  return bytes == 4 ? ((device const uint*)row)[i]
                    : uint(((device const ushort*)row)[i]);
}

// N elements of an array's row from element i on, which are 16 bytes.
template <int N>
inline uint4 fetch_dense(device const uchar* row, int i, int length) {
  constexpr int bytes = 16 / N;
  if (linear_aligned) { // and then a vector lies in the row, or past its end
    if (whole || i < length) {
      return *(device const uint4*)(row + long(i) * bytes);
    }
    return uint4(0, 0, 0, 0);
  }
  uint words[4];
  for (int k = 0; k < 4; ++k) {
    words[k] = N == 4 ? element_bits(row, 4, i + k, length)
                      : element_bits(row, 2, i + 2 * k, length) |
            element_bits(row, 2, i + 2 * k + 1, length) << 16;
  }
  return uint4(words[0], words[1], words[2], words[3]);
}

// 16 elements of a packed row, whose length is a multiple of 32.
inline uint4 fetch_packed(device const uchar* row, int i, int length) {
  if (!whole && i >= length) {
    return uint4(0, 0, 0, 0);
  }
  device const uint* words =
      (device const uint*)(row + long(i) / 8 * linear_bits);
  if (linear_aligned) {
    return linear_bits == 8 ? *(device const uint4*)words
                            : uint4(*(device const uint2*)words, uint2(0, 0));
  }
  return linear_bits == 8 ? uint4(words[0], words[1], words[2], words[3])
                          : uint4(words[0], words[1], 0, 0);
}

template <int N>
inline uint4 fetch_weights(device const uchar* row, int i, int length) {
  if (N == 16) {
    return fetch_packed(row, i, length);
  }
  return fetch_dense<N>(row, i, length);
}

// 1 + q / 2^bits of eight elements in one word or two: q is put where a float
// has its highest digits, which takes no conversion.
inline void unpack_fields(uint low, uint high, thread float* v) {
  for (int j = 0; j < 8; ++j) {
    uint field = linear_bits == 8
        ? ((j < 4 ? low : high) >> (8 * (j % 4))) & 255u
        : (low >> (4 * j)) & 15u;
    v[j] = as_type<float>(0x3f800000u | field << (23 - linear_bits));
  }
}

// Piece h of P values of what was fetched.
template <int N, int P>
inline void unpack_weights(uint4 bits, int type, int h, thread float* v) {
  if (N < 16) {
    unpack<P>(bits, type, v);
  } else if (linear_bits == 8) {
    unpack_fields(h == 0 ? bits.x : bits.z, h == 0 ? bits.y : bits.w, v);
  } else {
    unpack_fields(h == 0 ? bits.x : bits.y, 0u, v);
  }
}

// A group's scale and bias for values 1 + q / 2^bits: its weights are
// factor * value + term.
struct Affine {
  float factor;
  float term;
};

inline Affine load_affine(
    device const uchar* scales,
    device const uchar* biases,
    int type,
    int i,
    int length) {
  if (!whole && i >= length) {
    return Affine{0.0f, 0.0f};
  }
  long at = long(i / linear_group_size) * size_of(type);
  float factor = float(1 << linear_bits) * load(scales + at, type);
  return Affine{factor, load(biases + at, type) - factor};
}
