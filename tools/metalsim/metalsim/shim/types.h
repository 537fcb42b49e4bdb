// Copyright © 2026 mlx_norms contributors
// Scalar types, constants and what the runtime shares.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <limits>
#include <type_traits>

#include "../runtime/state.h"

#define MSL_INLINE inline __attribute__((always_inline))
// Of the simulator's own memory only, so out of sight of the checks.
#define MSL_UNCHECKED \
  __attribute__((no_sanitize("thread", "alignment", "bounds", "object-size")))
#define METAL_FUNC inline
#define METAL_INTERNAL inline

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_huge_valf())
#define HUGE_VALH (half(__builtin_huge_valf()))
#define MAXFLOAT 3.402823466e+38f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX half(65504.0f)
#define HALF_MIN half(6.103515625e-5f)
#define HALF_EPSILON half(9.765625e-4f)
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_PI_H half(M_PI_F)

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

namespace metalsim {

extern __attribute__((visibility("hidden"))) State* state;

} // namespace metalsim

// Metal's bfloat: implicit to float, explicit from a wider type.
struct bfloat {
  uint16_t bits;

  bfloat() = default;
  constexpr explicit bfloat(float f) : bits(rounded(f)) {}
  constexpr explicit bfloat(half f) : bits(rounded(float(f))) {}
  template <class I>
    requires(std::is_integral_v<I>)
  constexpr bfloat(I i) : bits(rounded(float(i))) {}

  // To the nearest, ties to even; a NaN stays one.
  static constexpr uint16_t rounded(float f) {
    uint32_t u = __builtin_bit_cast(uint32_t, f);
    if ((u & 0x7fffffff) > 0x7f800000) {
      return uint16_t(u >> 16 | 0x40);
    }
    return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
  constexpr operator float() const {
    return __builtin_bit_cast(float, uint32_t(bits) << 16);
  }
  constexpr bfloat operator-() const {
    bfloat r{};
    r.bits = bits ^ 0x8000;
    return r;
  }
  constexpr bfloat operator+() const {
    return *this;
  }
};

#define MSL_BFLOAT_OPERATOR(op)                              \
  constexpr bfloat operator op(bfloat a, bfloat b) {         \
    return bfloat(float(a) op float(b));                     \
  }                                                          \
  template <class I>                                         \
    requires(std::is_integral_v<I>)                          \
  constexpr bfloat operator op(bfloat a, I b) {              \
    return a op bfloat(b);                                   \
  }                                                          \
  template <class I>                                         \
    requires(std::is_integral_v<I>)                          \
  constexpr bfloat operator op(I a, bfloat b) {              \
    return bfloat(a) op b;                                   \
  }                                                          \
  constexpr bfloat& operator op## = (bfloat & a, bfloat b) { \
    return a = a op b;                                       \
  }                                                          \
  constexpr bfloat& operator op## = (bfloat & a, float b) {  \
    return a = bfloat(float(a) op b);                        \
  }                                                          \
  template <class I>                                         \
    requires(std::is_integral_v<I>)                          \
  constexpr bfloat& operator op## = (bfloat & a, I b) {      \
    return a = a op b;                                       \
  }                                                          \
  constexpr float& operator op## = (float& a, bfloat b) {    \
    return a = a op float(b);                                \
  }
MSL_BFLOAT_OPERATOR(+)
MSL_BFLOAT_OPERATOR(-)
MSL_BFLOAT_OPERATOR(*)
MSL_BFLOAT_OPERATOR(/)
#undef MSL_BFLOAT_OPERATOR

namespace msl {

template <class T>
inline constexpr bool is_float = std::is_same_v<T, float> ||
    std::is_same_v<T, half> || std::is_same_v<T, bfloat>;
template <class T>
inline constexpr bool is_scalar = is_float<T> || std::is_arithmetic_v<T>;
template <class T>
concept Float = is_float<T>;
template <class T>
concept Scalar = is_scalar<T>;
template <class T>
concept Integer = std::is_integral_v<T>;

} // namespace msl
