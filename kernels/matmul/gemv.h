// Copyright (c) 2026 mlx_norms contributors
//
// Multiplies few rows x by a matrix w: c[r][n] = sum over k of x[r][k] w[k][n].
// Each element of w is read once, eight contiguous ones at a time. SIMD-groups
// share each sum, so that a matrix of few columns keeps a GPU's memory busy,
// too. How they share it depends only on the shape of w, so rows are
// batch-invariant.

#pragma once

#include "kernels/matmul/types.h"

// All vectors of eight elements are whole and aligned, and the depth is a
// multiple of eight.
constant bool w_vectors [[function_constant(86)]];
constant bool x_vectors [[function_constant(87)]];

// The bits of eight elements; 16-bit ones do not use `high`.
struct EightBits {
  uint4 low;
  uint4 high;
};

inline uint one_element(device const uchar* p) {
  return matmul_type == kFloat32 ? *(device const uint*)p
                                 : uint(*(device const ushort*)p);
}

inline uint elements_left(uint at, uint length) {
  return at < length ? length - at : 0;
}

// Eight elements that are `step` apart; zeros after the first `left`.
inline EightBits
eight_bits(device const uchar* p, bool vectors, int step, uint left) {
  EightBits bits;
  bits.low = uint4(0, 0, 0, 0);
  bits.high = uint4(0, 0, 0, 0);
  if (vectors) {
    if (left > 0) {
      bits.low = *(device const uint4*)p;
      if (matmul_type == kFloat32) {
        bits.high = ((device const uint4*)p)[1];
      }
    }
    return bits;
  }
  uint v[8];
  for (int j = 0; j < 8; ++j) {
    v[j] = uint(j) < left ? one_element(matmul_at(p, long(j) * step)) : 0;
  }
  if (matmul_type == kFloat32) {
    bits.low = uint4(v[0], v[1], v[2], v[3]);
    bits.high = uint4(v[4], v[5], v[6], v[7]);
  } else {
    bits.low = uint4(
        v[0] | v[1] << 16,
        v[2] | v[3] << 16,
        v[4] | v[5] << 16,
        v[6] | v[7] << 16);
  }
  return bits;
}

inline void eight_values(EightBits bits, thread float* v) {
  if (matmul_type == kFloat32) {
    put(v, as_type<float4>(bits.low));
    put(v + 4, as_type<float4>(bits.high));
  } else {
    unpack<8>(bits.low, matmul_type, v);
  }
}

// The values of four elements, likewise.
inline void four_values(
    device const uchar* p,
    bool vectors,
    int step,
    uint left,
    thread float* v) {
  if (vectors && left > 0) {
    load_vector<4>(p, matmul_type, v);
    return;
  }
  for (int j = 0; j < 4; ++j) {
    v[j] =
        uint(j) < left ? load(matmul_at(p, long(j) * step), matmul_type) : 0.0f;
  }
}

// Adds two lanes that differ in the bit `step`: `low` in the lane without it,
// `high` in the lane with it.
inline float split_sum(float low, float high, uint lane, int step) {
  bool upper = lane & step;
  return (upper ? high : low) + simd_shuffle_xor(upper ? low : high, step);
}
