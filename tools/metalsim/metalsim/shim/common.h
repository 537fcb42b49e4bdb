// Copyright © 2026 mlx_norms contributors
// Functions of integers and floats alike, and <metal_geometric>.
#pragma once

#include "math.h"

namespace metal {

template <msl::Integer T>
constexpr T abs(T x) {
  return x < 0 ? -x : x;
}
template <msl::Float T>
inline msl::Rounded<T> abs(T x) {
  return msl::Rounded<T>(__builtin_fabsf(x));
}
template <class T, int N>
inline vec<T, N> abs(const vec<T, N>& x) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) {
    r[i] = T(metal::abs(x[i]));
  }
  return r;
}

#define MSL_EXTREMUM_OF(T, name, op) \
  constexpr T name(T a, T b) {       \
    return b op a ? b : a;           \
  }
#define MSL_EXTREMUM(name, f, op)                                       \
  MSL_EXTREMUM_OF(char, name, op)                                       \
  MSL_EXTREMUM_OF(signed char, name, op)                                \
  MSL_EXTREMUM_OF(uchar, name, op)                                      \
  MSL_EXTREMUM_OF(short, name, op)                                      \
  MSL_EXTREMUM_OF(ushort, name, op)                                     \
  MSL_EXTREMUM_OF(int, name, op)                                        \
  MSL_EXTREMUM_OF(uint, name, op)                                       \
  MSL_EXTREMUM_OF(long, name, op)                                       \
  MSL_EXTREMUM_OF(ulong, name, op)                                      \
  inline float name(float a, float b) {                                 \
    return msl::functions::f(a, b);                                     \
  }                                                                     \
  inline half name(half a, half b) {                                    \
    return msl::functions::f(a, b);                                     \
  }                                                                     \
  template <class A, class B>                                           \
    requires msl::Operands<A, B>                                        \
  inline msl::Common<A, B> name(const A& a, const B& b) {               \
    using T = msl::Element<msl::Common<A, B>>;                          \
    msl::Common<A, B> r;                                                \
    for (int i = 0; i < msl::size_of<msl::Common<A, B>>; i++) {         \
      r[i] = T(name(msl::component<T>(a, i), msl::component<T>(b, i))); \
    }                                                                   \
    return r;                                                           \
  }
MSL_EXTREMUM(min, fmin, <)
MSL_EXTREMUM(max, fmax, >)
#undef MSL_EXTREMUM
#undef MSL_EXTREMUM_OF

template <class T>
inline auto min3(const T& a, const T& b, const T& c) {
  return metal::min(a, metal::min(b, c));
}
template <class T>
inline auto max3(const T& a, const T& b, const T& c) {
  return metal::max(a, metal::max(b, c));
}
template <class T>
inline auto median3(const T& a, const T& b, const T& c) {
  return metal::max(metal::min(a, b), metal::min(metal::max(a, b), c));
}
template <class T, class L, class H>
inline auto clamp(const T& x, const L& low, const H& high) {
  return metal::min(metal::max(x, low), high);
}

template <class T, int N>
inline T dot(const vec<T, N>& a, const vec<T, N>& b) {
  T r = T(a[0] * b[0]);
  for (int i = 1; i < N; i++) {
    r = T(r + a[i] * b[i]);
  }
  return r;
}
template <class T, int N>
inline T length_squared(const vec<T, N>& a) {
  return metal::dot(a, a);
}
template <class T, int N>
inline T length(const vec<T, N>& a) {
  return T(metal::sqrt(metal::dot(a, a)));
}
template <class T, int N>
inline T distance_squared(const vec<T, N>& a, const vec<T, N>& b) {
  return metal::length_squared(a - b);
}
template <class T, int N>
inline T distance(const vec<T, N>& a, const vec<T, N>& b) {
  return metal::length(a - b);
}
template <class T, int N>
inline vec<T, N> normalize(const vec<T, N>& a) {
  return a * metal::rsqrt(metal::dot(a, a));
}
template <class T>
inline vec<T, 3> cross(const vec<T, 3>& a, const vec<T, 3>& b) {
  return vec<T, 3>(
      a[1] * b[2] - a[2] * b[1],
      a[2] * b[0] - a[0] * b[2],
      a[0] * b[1] - a[1] * b[0]);
}

namespace fast {
using metal::abs;
using metal::clamp;
using metal::length;
using metal::max;
using metal::min;
using metal::normalize;
} // namespace fast
namespace precise {
using metal::abs;
using metal::clamp;
using metal::length;
using metal::max;
using metal::min;
using metal::normalize;
} // namespace precise

} // namespace metal
