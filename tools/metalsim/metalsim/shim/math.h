// Copyright © 2026 mlx_norms contributors
// <metal_math>, computed in float and rounded once; a bfloat becomes a float,
// as in MSL. metal::precise are the same functions; for metal::fast see fast.h.
#pragma once

#include "vector.h"

namespace msl {

inline float exp10(float x) {
  return float(__builtin_exp2(x * 3.321928094887362348));
}
inline float rsqrt(float x) {
  return float(1 / __builtin_sqrt(double(x)));
}
inline float fract(float x) {
  return __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f);
}
inline float sign(float x) {
  return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f;
}
inline float saturate(float x) {
  return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f);
}
constexpr double kPi = 3.14159265358979323846;
inline float sinpi(float x) {
  return float(__builtin_sin(kPi * x));
}
inline float cospi(float x) {
  return float(__builtin_cos(kPi * x));
}
inline float tanpi(float x) {
  return float(__builtin_tan(kPi * x));
}
inline float divide(float a, float b) {
  return a / b;
}
inline float step(float edge, float x) {
  return x < edge ? 0.0f : 1.0f;
}
inline float fmin3(float a, float b, float c) {
  return __builtin_fminf(a, __builtin_fminf(b, c));
}
inline float fmax3(float a, float b, float c) {
  return __builtin_fmaxf(a, __builtin_fmaxf(b, c));
}
inline float fmedian3(float a, float b, float c) {
  float low = __builtin_fminf(a, b), high = __builtin_fmaxf(a, b);
  return __builtin_fmaxf(low, __builtin_fminf(high, c));
}
inline float mix(float a, float b, float t) {
  return a + (b - a) * t;
}
inline float smoothstep(float low, float high, float x) {
  float t = saturate((x - low) / (high - low));
  return t * t * (3 - 2 * t);
}

template <class T>
using Rounded = std::conditional_t<std::is_same_v<T, half>, half, float>;

// A float function of one to three scalars or, by components, vectors. Those of
// scalars are no templates, so that a call with different types is ambiguous
// where Metal's is.
#define MSL_FUNCTION1(name, f)                                           \
  MSL_INLINE float name(float x) {                                       \
    return f(x);                                                         \
  }                                                                      \
  MSL_INLINE half name(half x) {                                         \
    return half(f(float(x)));                                            \
  }                                                                      \
  template <Float T, int N>                                              \
  MSL_INLINE metal::vec<Rounded<T>, N> name(const metal::vec<T, N>& x) { \
    metal::vec<Rounded<T>, N> r;                                         \
    for (int i = 0; i < N; i++) {                                        \
      r[i] = Rounded<T>(f(float(x[i])));                                 \
    }                                                                    \
    return r;                                                            \
  }

#define MSL_FUNCTION2(name, f)                                                 \
  MSL_INLINE float name(float x, float y) {                                    \
    return f(x, y);                                                            \
  }                                                                            \
  MSL_INLINE half name(half x, half y) {                                       \
    return half(f(float(x), float(y)));                                        \
  }                                                                            \
  template <class A, class B>                                                  \
    requires(Operands<A, B> && is_float<Element<Common<A, B>>>)                \
  MSL_INLINE auto name(const A& x, const B& y) {                               \
    using T = Element<Common<A, B>>;                                           \
    metal::vec<Rounded<T>, size_of<Common<A, B>>> r;                           \
    for (int i = 0; i < size_of<Common<A, B>>; i++) {                          \
      r[i] =                                                                   \
          Rounded<T>(f(float(component<T>(x, i)), float(component<T>(y, i)))); \
    }                                                                          \
    return r;                                                                  \
  }

#define MSL_FUNCTION3(name, f)                                                 \
  MSL_INLINE float name(float x, float y, float z) {                           \
    return f(x, y, z);                                                         \
  }                                                                            \
  MSL_INLINE half name(half x, half y, half z) {                               \
    return half(f(float(x), float(y), float(z)));                              \
  }                                                                            \
  template <class A, class B, class C>                                         \
    requires(Vector<A> || Vector<B> || Vector<C>)                              \
  MSL_INLINE auto name(const A& x, const B& y, const C& z) {                   \
    using V =                                                                  \
        std::conditional_t<Vector<A>, A, std::conditional_t<Vector<B>, B, C>>; \
    using T = Element<V>;                                                      \
    metal::vec<Rounded<T>, size_of<V>> r;                                      \
    for (int i = 0; i < size_of<V>; i++) {                                     \
      r[i] = Rounded<T>(                                                       \
          f(float(component<T>(x, i)),                                         \
            float(component<T>(y, i)),                                         \
            float(component<T>(z, i))));                                       \
    }                                                                          \
    return r;                                                                  \
  }

// Those that are off in metal::fast, and those that are not.
#define MSL_INEXACT1(X)      \
  X(exp, __builtin_expf)     \
  X(exp2, __builtin_exp2f)   \
  X(exp10, msl::exp10)       \
  X(log, __builtin_logf)     \
  X(log2, __builtin_log2f)   \
  X(log10, __builtin_log10f) \
  X(sqrt, __builtin_sqrtf)   \
  X(rsqrt, msl::rsqrt)       \
  X(sin, __builtin_sinf)     \
  X(cos, __builtin_cosf)     \
  X(tan, __builtin_tanf)     \
  X(sinpi, msl::sinpi)       \
  X(cospi, msl::cospi)       \
  X(tanpi, msl::tanpi)       \
  X(asin, __builtin_asinf)   \
  X(acos, __builtin_acosf)   \
  X(atan, __builtin_atanf)   \
  X(sinh, __builtin_sinhf)   \
  X(cosh, __builtin_coshf)   \
  X(tanh, __builtin_tanhf)   \
  X(asinh, __builtin_asinhf) \
  X(acosh, __builtin_acoshf) \
  X(atanh, __builtin_atanhf)
#define MSL_EXACT1(X)        \
  X(floor, __builtin_floorf) \
  X(ceil, __builtin_ceilf)   \
  X(trunc, __builtin_truncf) \
  X(round, __builtin_roundf) \
  X(rint, __builtin_rintf)   \
  X(fabs, __builtin_fabsf)   \
  X(fract, msl::fract)       \
  X(sign, msl::sign)         \
  X(saturate, msl::saturate)
#define MSL_FUNCTIONS1(X) MSL_INEXACT1(X) MSL_EXACT1(X)

#define MSL_INEXACT2(X)      \
  X(pow, __builtin_powf)     \
  X(powr, __builtin_powf)    \
  X(atan2, __builtin_atan2f) \
  X(divide, msl::divide)
#define MSL_EXACT2(X)              \
  X(fmod, __builtin_fmodf)         \
  X(fmin, __builtin_fminf)         \
  X(fmax, __builtin_fmaxf)         \
  X(fdim, __builtin_fdimf)         \
  X(copysign, __builtin_copysignf) \
  X(step, msl::step)
#define MSL_FUNCTIONS2(X) MSL_INEXACT2(X) MSL_EXACT2(X)

#define MSL_FUNCTIONS3(X)    \
  X(fmin3, msl::fmin3)       \
  X(fmax3, msl::fmax3)       \
  X(fmedian3, msl::fmedian3) \
  X(mix, msl::mix)           \
  X(smoothstep, msl::smoothstep)

namespace functions {

MSL_FUNCTIONS1(MSL_FUNCTION1)
MSL_FUNCTIONS2(MSL_FUNCTION2)
MSL_FUNCTIONS3(MSL_FUNCTION3)

MSL_INLINE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
MSL_INLINE half fma(half a, half b, half c) {
  return half(__builtin_fma(double(a), double(b), double(c)));
}
template <Float T, int N>
MSL_INLINE metal::vec<T, N> fma(
    const metal::vec<T, N>& a,
    const metal::vec<T, N>& b,
    const metal::vec<T, N>& c) {
  metal::vec<T, N> r;
  for (int i = 0; i < N; i++) {
    r[i] = T(functions::fma(a[i], b[i], c[i]));
  }
  return r;
}
template <class T>
MSL_INLINE auto mad(const T& a, const T& b, const T& c) {
  return a * b + c;
}

template <Float T>
inline Rounded<T> ldexp(T x, int k) {
  return Rounded<T>(__builtin_ldexpf(x, k));
}
template <Float T>
inline Rounded<T> frexp(T x, int& k) {
  return Rounded<T>(__builtin_frexpf(x, &k));
}
template <Float T>
inline int ilogb(T x) {
  return __builtin_ilogbf(x);
}
template <Float T>
inline Rounded<T> modf(T x, T& whole) {
  float w = __builtin_truncf(x);
  whole = T(w);
  return Rounded<T>(float(x) - w);
}
inline float nextafter(float x, float y) {
  return __builtin_nextafterf(x, y);
}
template <Float T>
inline Rounded<T> sincos(T x, T& c) {
  c = T(__builtin_cosf(x));
  return Rounded<T>(__builtin_sinf(x));
}

} // namespace functions

} // namespace msl

#define MSL_USING(name, f) using msl::functions::name;
#define MSL_EXACT_MORE(X) \
  MSL_FUNCTIONS3(X)       \
  X(fma, )                \
  X(mad, )                \
  X(ldexp, )              \
  X(frexp, )              \
  X(ilogb, )              \
  X(modf, )               \
  X(nextafter, )
#define MSL_USING_ALL       \
  MSL_FUNCTIONS1(MSL_USING) \
  MSL_FUNCTIONS2(MSL_USING) \
  MSL_EXACT_MORE(MSL_USING) \
  MSL_USING(sincos, )

namespace metal {
MSL_USING_ALL
namespace precise {
MSL_USING_ALL
}
} // namespace metal

// The compiler's own functions, which MLX's headers call on floats.
#define MSL_INTERNAL1(name, f)                        \
  inline float __metal_##name(float x, bool = true) { \
    return f(x);                                      \
  }
#define MSL_INTERNAL2(name, f)                                 \
  inline float __metal_##name(float x, float y, bool = true) { \
    return f(x, y);                                            \
  }
#define MSL_INTERNAL3(name, f)                                          \
  inline float __metal_##name(float x, float y, float z, bool = true) { \
    return f(x, y, z);                                                  \
  }
MSL_FUNCTIONS1(MSL_INTERNAL1)
MSL_FUNCTIONS2(MSL_INTERNAL2)
MSL_FUNCTIONS3(MSL_INTERNAL3)
inline float __metal_fma(float x, float y, float z) {
  return __builtin_fmaf(x, y, z);
}
inline float __metal_ldexp(float x, int k, bool = true) {
  return __builtin_ldexpf(x, k);
}
inline float __metal_frexp(float x, int* k) {
  return __builtin_frexpf(x, k);
}
inline float __metal_nextafter(float x, float y) {
  return __builtin_nextafterf(x, y);
}

#define __METAL_FAST_MATH__ 1
#define __METAL_MAYBE_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 0
