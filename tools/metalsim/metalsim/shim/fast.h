// Copyright © 2026 mlx_norms contributors
// metal::fast, whose results are off by what a launch asks for.
#pragma once

#include "math.h"

#include "permitted.h"

namespace msl::fast {

inline __attribute__((noinline)) MSL_UNCHECKED metalsim::FastMath permitted() {
  return {metalsim::state->launch->fast_error};
}

#define MSL_OFF(name, exact, value)           \
  inline float name(float x) {                \
    metalsim::FastMath by = permitted();      \
    return by.factor == 0 ? exact(x) : value; \
  }
MSL_OFF(sin, __builtin_sinf, by.sin(x))
MSL_OFF(cos, __builtin_cosf, by.cos(x))
MSL_OFF(sinpi, msl::sinpi, by.turned(msl::sinpi(x), x, x))
MSL_OFF(cospi, msl::cospi, by.turned(msl::cospi(x), x, x))
// A unit more for each halving or doubling, and three.
#define MSL_ULPS_OF_EXP \
  3 + __builtin_floorf(__builtin_fminf(__builtin_fabsf(2 * x), 256))
MSL_OFF(
    exp,
    __builtin_expf,
    by.off_by_ulps(__builtin_expf(x), x, MSL_ULPS_OF_EXP))
MSL_OFF(
    exp2,
    __builtin_exp2f,
    by.off_by_ulps(__builtin_exp2f(x), x, MSL_ULPS_OF_EXP))
#undef MSL_ULPS_OF_EXP
// The largest of the bounds of log, log2 and log10.
inline float logarithm(float y, float x) {
  metalsim::FastMath by = permitted();
  return x >= 0.5f && x <= 2 ? by.off(y, x, 0x1p-21f) : by.off_by_ulps(y, x, 3);
}
MSL_OFF(log, __builtin_logf, logarithm(__builtin_logf(x), x))
MSL_OFF(log2, __builtin_log2f, logarithm(__builtin_log2f(x), x))
MSL_OFF(log10, __builtin_log10f, logarithm(__builtin_log10f(x), x))
MSL_OFF(rsqrt, msl::rsqrt, by.off_by_ulps(msl::rsqrt(x), x, 2))
MSL_OFF(asin, __builtin_asinf, by.off_by_ulps(__builtin_asinf(x), x, 5))
MSL_OFF(acos, __builtin_acosf, by.off_by_ulps(__builtin_acosf(x), x, 5))
MSL_OFF(atan, __builtin_atanf, by.off_by_ulps(__builtin_atanf(x), x, 5))
inline float divide(float x, float y) {
  return permitted().off_by_ulps(x / y, y, 2.5f);
}

// Metal gives no bounds for these, but what they are computed by.
MSL_OFF(tan, __builtin_tanf, sin(x) * divide(1, cos(x)))
MSL_OFF(tanpi, msl::tanpi, tan(x* float(kPi)))
MSL_OFF(exp10, msl::exp10, exp2(x * 3.32192809f))
MSL_OFF(sqrt, __builtin_sqrtf, x == 0 || x == INFINITY ? x : x * rsqrt(x))
MSL_OFF(sinh, __builtin_sinhf, 0.5f * (exp(x) - exp(-x)))
MSL_OFF(cosh, __builtin_coshf, 0.5f * (exp(x) + exp(-x)))
inline float tanh_of(float t) {
  return t == INFINITY ? 1 : divide(t - 1, t + 1);
}
MSL_OFF(tanh, __builtin_tanhf, tanh_of(exp(2 * x)))
MSL_OFF(asinh, __builtin_asinhf, log(x + sqrt(x * x + 1)))
MSL_OFF(acosh, __builtin_acoshf, log(x + sqrt(x * x - 1)))
MSL_OFF(atanh, __builtin_atanhf, 0.5f * log(divide(1 + x, 1 - x)))
#undef MSL_OFF
inline float pow(float x, float y) {
  float exact = __builtin_powf(x, y);
  bool composed = permitted().factor != 0 && x > 0 && __builtin_isfinite(exact);
  return composed ? exp2(y * log2(x)) : exact;
}
inline float atan2(float y, float x) {
  return permitted().off_by_ulps(__builtin_atan2f(y, x), x, 6);
}

// As functions of half and of vectors, too.
namespace functions {
#define MSL_FAST1(name, f) MSL_FUNCTION1(name, msl::fast::name)
MSL_INEXACT1(MSL_FAST1)
#undef MSL_FAST1
MSL_FUNCTION2(pow, msl::fast::pow)
MSL_FUNCTION2(powr, msl::fast::pow)
MSL_FUNCTION2(atan2, msl::fast::atan2)
MSL_FUNCTION2(divide, msl::fast::divide)
template <Float T>
inline Rounded<T> sincos(T x, T& c) {
  c = T(msl::fast::cos(x));
  return Rounded<T>(msl::fast::sin(x));
}
} // namespace functions

} // namespace msl::fast

namespace metal::fast {
#define MSL_USING_FAST(name, f) using msl::fast::functions::name;
MSL_INEXACT1(MSL_USING_FAST)
MSL_INEXACT2(MSL_USING_FAST)
MSL_USING_FAST(sincos, )
#undef MSL_USING_FAST
MSL_EXACT1(MSL_USING)
MSL_EXACT2(MSL_USING)
MSL_EXACT_MORE(MSL_USING)
} // namespace metal::fast
