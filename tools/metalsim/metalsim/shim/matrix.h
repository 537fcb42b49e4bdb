// Copyright © 2026 mlx_norms contributors
// <metal_matrix>: matrices of columns.
#pragma once

#include "common.h"

namespace metal {

template <class T, int C, int R>
struct matrix {
  vec<T, R> columns[C];

  matrix() = default;
  explicit matrix(T diagonal) {
    for (int c = 0; c < C; c++) {
      for (int r = 0; r < R; r++) {
        columns[c][r] = r == c ? diagonal : T(0);
      }
    }
  }
  template <class... V>
    requires(sizeof...(V) == C && (std::is_convertible_v<V, vec<T, R>> && ...))
  matrix(const V&... column) : columns{vec<T, R>(column)...} {}

  vec<T, R>& operator[](size_t i) {
    return columns[i];
  }
  const vec<T, R>& operator[](size_t i) const {
    return columns[i];
  }
};

template <class T, int C, int R>
inline vec<T, R> operator*(const matrix<T, C, R>& m, const vec<T, C>& v) {
  vec<T, R> r = m[0] * v[0];
  for (int c = 1; c < C; c++) {
    r += m[c] * v[c];
  }
  return r;
}
template <class T, int C, int R>
inline vec<T, C> operator*(const vec<T, R>& v, const matrix<T, C, R>& m) {
  vec<T, C> r;
  for (int c = 0; c < C; c++) {
    r[c] = metal::dot(v, m[c]);
  }
  return r;
}
template <class T, int K, int R, int C>
inline matrix<T, C, R> operator*(
    const matrix<T, K, R>& a,
    const matrix<T, C, K>& b) {
  matrix<T, C, R> r;
  for (int c = 0; c < C; c++) {
    r[c] = a * b[c];
  }
  return r;
}
template <class T, int C, int R>
inline matrix<T, C, R> operator*(T s, matrix<T, C, R> m) {
  for (int c = 0; c < C; c++) {
    m[c] = m[c] * s;
  }
  return m;
}
template <class T, int C, int R>
inline matrix<T, C, R> operator*(const matrix<T, C, R>& m, T s) {
  return s * m;
}
template <class T, int C, int R>
inline matrix<T, C, R> operator+(matrix<T, C, R> a, const matrix<T, C, R>& b) {
  for (int c = 0; c < C; c++) {
    a[c] += b[c];
  }
  return a;
}
template <class T, int C, int R>
inline matrix<T, C, R> operator-(matrix<T, C, R> a, const matrix<T, C, R>& b) {
  for (int c = 0; c < C; c++) {
    a[c] -= b[c];
  }
  return a;
}
template <class T, int C, int R>
inline matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
  matrix<T, R, C> r;
  for (int c = 0; c < C; c++) {
    for (int i = 0; i < R; i++) {
      r[i][c] = m[c][i];
    }
  }
  return r;
}

} // namespace metal

#define MSL_MATRICES(T)                  \
  typedef metal::matrix<T, 2, 2> T##2x2; \
  typedef metal::matrix<T, 2, 3> T##2x3; \
  typedef metal::matrix<T, 2, 4> T##2x4; \
  typedef metal::matrix<T, 3, 2> T##3x2; \
  typedef metal::matrix<T, 3, 3> T##3x3; \
  typedef metal::matrix<T, 3, 4> T##3x4; \
  typedef metal::matrix<T, 4, 2> T##4x2; \
  typedef metal::matrix<T, 4, 3> T##4x3; \
  typedef metal::matrix<T, 4, 4> T##4x4;
MSL_MATRICES(float)
MSL_MATRICES(half)
#undef MSL_MATRICES
