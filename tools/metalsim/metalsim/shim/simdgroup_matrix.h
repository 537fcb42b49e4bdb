// Copyright © 2026 mlx_norms contributors
// <metal_simdgroup_matrix>: 8x8 matrices, two elements of a row in each lane.
#pragma once

#include "simdgroup.h"

namespace msl {

// The row and the first column that a lane holds, as on Apple's GPUs.
struct MatrixPlace {
  uint row, column;
  explicit MatrixPlace(uint lane) {
    uint quad = lane / 4;
    row = (quad & 4) + lane / 2 % 4;
    column = (quad & 2) * 2 + lane % 2 * 2;
  }
};

} // namespace msl

namespace metal {

template <class T, int R, int C = R>
struct simdgroup_matrix {
  static_assert(
      R == 8 && C == 8,
      "a SIMD-group's matrix has 8 rows and 8 columns");
  vec<T, 2> elements;

  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    msl::MatrixPlace at(msl::lane());
    for (uint i = 0; i < 2; i++) {
      elements[i] = at.row == at.column + i ? diagonal : T(0);
    }
  }
  vec<T, 2>& thread_elements() {
    return elements;
  }
  const vec<T, 2>& thread_elements() const {
    return elements;
  }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int R, int C = R>
inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, R, C> m;
  m.elements = vec<T, 2>(value);
  return m;
}
template <class T, int R, int C = R>
inline simdgroup_matrix<T, R, C> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, R, C>(value);
}

template <class T, class P>
MSL_INLINE void simdgroup_load(
    simdgroup_matrix<T, 8, 8>& m,
    const P* from,
    ulong row_elements = 8,
    ulong2 origin = 0,
    bool transposed = false,
    MSL_SITE) {
  msl::MatrixPlace at(msl::lane());
  char slot;
  msl::together(
      metalsim::kMatrix, slot, [](void**, uint32_t) MSL_UNCHECKED {}, site);
  from += origin.y * row_elements + origin.x;
  for (uint i = 0; i < 2; i++) {
    uint r = transposed ? at.column + i : at.row,
         c = transposed ? at.row : at.column + i;
    m.elements[i] = T(from[r * row_elements + c]);
  }
}
template <class T, class P>
MSL_INLINE void simdgroup_store(
    const simdgroup_matrix<T, 8, 8>& m,
    P* to,
    ulong row_elements = 8,
    ulong2 origin = 0,
    bool transposed = false,
    MSL_SITE) {
  msl::MatrixPlace at(msl::lane());
  char slot;
  msl::together(
      metalsim::kMatrix, slot, [](void**, uint32_t) MSL_UNCHECKED {}, site);
  to += origin.y * row_elements + origin.x;
  for (uint i = 0; i < 2; i++) {
    uint r = transposed ? at.column + i : at.row,
         c = transposed ? at.row : at.column + i;
    to[r * row_elements + c] = P(m.elements[i]);
  }
}

// d = a * b + c, summed in float.
template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(
    simdgroup_matrix<D, 8, 8>& d,
    const simdgroup_matrix<A, 8, 8>& a,
    const simdgroup_matrix<B, 8, 8>& b,
    const simdgroup_matrix<C, 8, 8>& c,
    MSL_SITE) {
  struct Slot {
    float a[2], b[2], sum[2];
  } slot = {
      {float(a.elements[0]), float(a.elements[1])},
      {float(b.elements[0]), float(b.elements[1])},
      {float(c.elements[0]), float(c.elements[1])}};
  msl::together(
      metalsim::kMatrix,
      slot,
      MSL_COMBINE {
        float left[8][8] = {}, right[8][8] = {}, sum[8][8] = {};
        for (uint lane = 0; lane < 32; lane++) {
          if (active >> lane & 1) {
            msl::MatrixPlace at(lane);
            const Slot& s = *static_cast<Slot*>(slots[lane]);
            for (uint i = 0; i < 2; i++) {
              left[at.row][at.column + i] = s.a[i];
              right[at.row][at.column + i] = s.b[i];
              sum[at.row][at.column + i] = s.sum[i];
            }
          }
        }
        for (uint i = 0; i < 8; i++) {
          for (uint k = 0; k < 8; k++) {
            for (uint j = 0; j < 8; j++) {
              sum[i][j] += left[i][k] * right[k][j];
            }
          }
        }
        for (uint lane = 0; lane < 32; lane++) {
          if (active >> lane & 1) {
            msl::MatrixPlace at(lane);
            for (uint i = 0; i < 2; i++) {
              static_cast<Slot*>(slots[lane])->sum[i] =
                  sum[at.row][at.column + i];
            }
          }
        }
      },
      site);
  d.elements = vec<D, 2>(D(slot.sum[0]), D(slot.sum[1]));
}
template <class D, class A, class B>
MSL_INLINE void simdgroup_multiply(
    simdgroup_matrix<D, 8, 8>& d,
    const simdgroup_matrix<A, 8, 8>& a,
    const simdgroup_matrix<B, 8, 8>& b,
    MSL_SITE) {
  simdgroup_matrix<float, 8, 8> zero(0.0f);
  simdgroup_multiply_accumulate(d, a, b, zero, site);
}

} // namespace metal
