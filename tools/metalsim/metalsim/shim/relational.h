// Copyright © 2026 mlx_norms contributors
// <metal_relational>
#pragma once

#include "vector.h"

namespace metal {

template <int N>
constexpr bool any(const vec<bool, N>& v) {
  bool r = false;
  for (int i = 0; i < N; i++) {
    r |= v[i];
  }
  return r;
}
constexpr bool any(bool v) {
  return v;
}
template <int N>
constexpr bool all(const vec<bool, N>& v) {
  bool r = true;
  for (int i = 0; i < N; i++) {
    r &= v[i];
  }
  return r;
}
constexpr bool all(bool v) {
  return v;
}

#define MSL_PREDICATE(name, builtin)             \
  template <msl::Float T>                        \
  inline bool name(T x) {                        \
    return builtin(float(x));                    \
  }                                              \
  template <msl::Float T, int N>                 \
  inline vec<bool, N> name(const vec<T, N>& x) { \
    vec<bool, N> r;                              \
    for (int i = 0; i < N; i++) {                \
      r[i] = builtin(float(x[i]));               \
    }                                            \
    return r;                                    \
  }
MSL_PREDICATE(isnan, __builtin_isnan)
MSL_PREDICATE(isinf, __builtin_isinf)
MSL_PREDICATE(isfinite, __builtin_isfinite)
MSL_PREDICATE(signbit, __builtin_signbit)
#undef MSL_PREDICATE
template <msl::Float T>
inline bool isnormal(T x) {
  float smallest = std::is_same_v<T, half> ? 0x1p-14f : 0x1p-126f;
  return __builtin_isfinite(float(x)) && __builtin_fabsf(float(x)) >= smallest;
}

template <msl::Scalar T>
constexpr T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, int N>
constexpr vec<T, N>
select(const vec<T, N>& a, const vec<T, N>& b, const vec<bool, N>& c) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) {
    r[i] = c[i] ? b[i] : a[i];
  }
  return r;
}

} // namespace metal
