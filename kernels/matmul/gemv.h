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
constant bool w_vectors [[function_constant]];
constant bool x_vectors [[function_constant]];

// The bits of at most eight elements; 16-bit ones do not use `high`.
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

// Where a loop is in an array. On Apple's GPUs a pointer that moves takes fewer
// registers than an index, on NVIDIA's more.
struct Place {
  device const uchar* data;
  uint index;

  // Moves by elements that are `step` apart.
  void move(uint elements, int step) thread {
#ifdef __CUDACC__
    index += elements;
#else
    data = matmul_at(data, long(elements) * step);
#endif
  }

  device const uchar* at(uint element, int step) const thread {
    return matmul_at(data, long(index + element) * step);
  }
};

// E elements that are `step` apart; zeros after the first `left`.
template <int E>
inline EightBits
load_bits(device const uchar* p, bool vectors, int step, uint left) {
  EightBits bits;
  bits.low = uint4(0, 0, 0, 0);
  bits.high = uint4(0, 0, 0, 0);
  if (vectors && E % 4 == 0) {
    if (left > 0) {
      bits.low = E == 8 || matmul_type == kFloat32
          ? *(device const uint4*)p
          : uint4(*(device const uint2*)p, uint2(0, 0));
      if (E == 8 && matmul_type == kFloat32) {
        bits.high = ((device const uint4*)p)[1];
      }
    }
    return bits;
  }
  uint v[8];
  for (int j = 0; j < 8; ++j) {
    long at = vectors ? j : long(j) * step;
    v[j] = j < E && uint(j) < left ? one_element(matmul_at(p, at)) : 0;
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

template <int E>
inline void values_of(EightBits bits, thread float* v) {
  float all[8];
  if (matmul_type == kFloat32) {
    put(all, as_type<float4>(bits.low));
    put(all + 4, as_type<float4>(bits.high));
  } else {
    unpack<8>(bits.low, matmul_type, all);
  }
  for (int j = 0; j < E; ++j) {
    v[j] = all[j];
  }
}

// Adds two lanes that differ in the bit `step`: `low` in the lane without it,
// `high` in the lane with it.
inline float split_sum(float low, float high, uint lane, int step) {
  bool upper = lane & step;
  return (upper ? high : low) + simd_shuffle_xor(upper ? low : high, step);
}
