// Copyright © 2026 mlx_norms contributors
//
// The activations of gates, and their derivatives. Where results are rounded at
// each step they have the bits of MLX's ops on the CPU, whose polynomials these
// are (mlx/backend/cpu/simd/math.h).

#pragma once

#include "csrc/common/activation.h"
#include "csrc/cpu/simd.h"

namespace {

using mlx_norms::Activation;

// a * b + c, rounded once.
inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a),
      reinterpret_cast<__m512>(b),
      reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  return reinterpret_cast<Floats>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a),
      reinterpret_cast<__m256>(b),
      reinterpret_cast<__m256>(c)));
#else
  Floats v;
  for (int i = 0; i < kWidth; ++i) {
    v[i] = __builtin_fmaf(a[i], b[i], c[i]);
  }
  return v;
#endif
}

inline Floats magnitude(Floats v) {
  return as_floats(as_words(v) & 0x7fffffffu);
}

inline Floats exponential(Floats v) {
  Floats x = v * 1.442695f;
  // The nearest integer; halves up, as floor(x + 0.5) in double has it.
  Floats whole =
      __builtin_convertvector(__builtin_convertvector(x, Ints), Floats);
  whole = whole > x ? whole - 1.0f : whole;
  whole = x - whole >= 0.5f ? whole + 1.0f : whole;
  Floats part = x - whole;
  Floats y = splat(1.535336188319500e-4f);
  y = fused(y, part, splat(1.339887440266574e-3f));
  y = fused(y, part, splat(9.618437357674640e-3f));
  y = fused(y, part, splat(5.550332471162809e-2f));
  y = fused(y, part, splat(2.402264791363012e-1f));
  y = fused(y, part, splat(6.931472028550421e-1f));
  y = fused(y, part, splat(1.0f));
  auto bits = (__builtin_convertvector(whole, Ints) + 127) << 23;
  y = reinterpret_cast<Floats>(bits) * y;
  y = v > 88.0f ? splat(__builtin_inff()) : y;
  y = v < -88.0f ? Floats{} : y;
  return v != v ? v : y;
}

inline Floats error_function(Floats v) {
  Floats t = 1.0f / fused(splat(0.3275911f), magnitude(v), splat(1.0f));
  Floats r = fused(splat(1.061405429f), t, splat(-1.453152027f));
  r = fused(r, t, splat(1.421413741f));
  r = fused(r, t, splat(-0.284496736f));
  r = fused(r, t, splat(0.254829592f));
  Floats e = -exponential(-v * v);
  r = fused(e * t, r, splat(1.0f));
  return v > 0.0f ? r : -r;
}

// T is what each step is rounded to.
template <typename T>
inline Floats sigmoid(Floats v) {
  Floats y = 1.0f / (1.0f + round_to<T>(exponential(magnitude(v))));
  return round_to<T>(v < 0.0f ? y : 1.0f - y);
}

template <typename T>
inline Floats gelu(Floats v) {
  Floats root = round_to<T>(splat(1.41421356237309504880f));
  Floats e = round_to<T>(error_function(round_to<T>(v / root)));
  Floats y = round_to<T>(v * round_to<T>(1.0f + e));
  return round_to<T>(y * 0.5f);
}

template <Activation kActivation, typename T>
inline Floats activated(Floats v) {
  if constexpr (kActivation == Activation::Sigmoid) {
    return sigmoid<T>(v);
  } else if constexpr (kActivation == Activation::Silu) {
    return round_to<T>(v * sigmoid<T>(v));
  } else if constexpr (kActivation == Activation::Gelu) {
    return gelu<T>(v);
  } else if constexpr (kActivation == Activation::Relu2) {
    Floats r = v < 0.0f ? Floats{} : v; // NaN stays
    return round_to<T>(r * r);
  } else {
    return v;
  }
}

// Whether it takes less time than to look it up, or to load what was kept.
constexpr bool is_cheap(Activation activation) {
  return activation == Activation::None || activation == Activation::Relu2;
}

struct ValueAndSlope {
  Floats value, slope;
};

template <Activation kActivation>
constexpr bool kNeedsSigmoid =
    kActivation == Activation::Sigmoid || kActivation == Activation::Silu;

// Computes both in float32, from the sigmoid of v.
template <Activation kActivation>
inline ValueAndSlope value_and_slope(Floats v, Floats sigmoid) {
  static_assert(kNeedsSigmoid<kActivation>);
  Floats rest = 1.0f - sigmoid;
  if constexpr (kActivation == Activation::Sigmoid) {
    return {sigmoid, sigmoid * rest};
  }
  Floats y = v * sigmoid;
  return {y, sigmoid + y * rest};
}

// Computes both in float32, from at most one sigmoid or error function.
template <Activation kActivation>
inline ValueAndSlope value_and_slope(Floats v) {
  if constexpr (kNeedsSigmoid<kActivation>) {
    return value_and_slope<kActivation>(v, sigmoid<float>(v));
  } else if constexpr (kActivation == Activation::Gelu) {
    constexpr float kRoot = 0.70710678118654752440f;
    constexpr float kDensity = 0.39894228040143267794f; // 1 / sqrt(2 pi)
    Floats below = 0.5f + 0.5f * error_function(v * kRoot);
    Floats density = kDensity * exponential(v * v * -0.5f);
    return {v * below, below + v * density};
  } else if constexpr (kActivation == Activation::Relu2) {
    Floats r = v < 0.0f ? Floats{} : v;
    return {r * r, 2.0f * r};
  } else {
    return {v, splat(1.0f)};
  }
}

template <Activation kActivation>
inline Floats slope(Floats v) {
  return value_and_slope<kActivation>(v).slope;
}

template <Activation kActivation>
struct ActivationFlag {
  static constexpr Activation value = kActivation;
};

// Calls f with a type, for which a loop is compiled.
template <typename F>
inline void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::Sigmoid:
      return f(ActivationFlag<Activation::Sigmoid>{});
    case Activation::Silu:
      return f(ActivationFlag<Activation::Silu>{});
    case Activation::Gelu:
      return f(ActivationFlag<Activation::Gelu>{});
    case Activation::Relu2:
      return f(ActivationFlag<Activation::Relu2>{});
    case Activation::None:
      return f(ActivationFlag<Activation::None>{});
  }
}

} // namespace
