// Copyright (c) 2026 mlx_norms contributors
//
// The activation of a gate, which multiplies a norm's result or its input, and
// of a result. Rounding early, each step rounds where MLX's ops on a GPU do.

#pragma once

#include "kernels/common/float_types.h"

constant bool has_gate [[function_constant]];
constant bool gate_first [[function_constant]]; // of x, else of the result
// As in csrc/common/activation.h: of the gate or, without one, of the result.
constant int activation [[function_constant]];

enum ActivationKind {
  kNoActivation = 0,
  kSigmoid = 1,
  kSilu = 2,
  kGelu = 3,
  kRelu2 = 4
};

// exp(v) of v >= 0, to be rounded to this type.
inline float exp_for(float v, int type) {
#ifdef __CUDACC__
  if (type != kFloat32) {
    return exp_of_16_bits(v, type == kFloat16);
  }
#endif
  return precise::exp(v);
}

// As MLX has it on each GPU. On Metal it is Norbert Juffa's, by fma: below
// 1 - exp(p(t)) for large t, else a + a * p(a * a).
inline float error_function(float a) {
#ifdef __CUDACC__
  return precise::erf(a);
#else
  float t = fabs(a);
  float s = a * a;
  if (t > 0.927734375f) {
    float r = fma(-1.72853470e-5f, t, 3.83197126e-4f);
    float u = fma(-3.88396438e-3f, t, 2.42546219e-2f);
    r = fma(r, s, u);
    r = fma(r, t, -1.06777877e-1f);
    r = fma(r, t, -6.34846687e-1f);
    r = fma(r, t, -1.28717512e-1f);
    r = fma(r, t, -t);
    if (r < -87.0f) {
      return a < 0.0f ? -1.0f : 1.0f;
    }
    // expm1(r) = 2^i exp(f) - 1, of r = i log(2) + f, i < 0
    float i = fma(1.442695f, r, 12582912.0f) - 12582912.0f;
    float f = fma(i, -6.93145752e-1f, r);
    float e = 1.97350979e-4f;
    e = fma(e, f, 1.39309070e-3f);
    e = fma(e, f, 8.33343994e-3f);
    e = fma(e, f, 4.16668020e-2f);
    e = fma(e, f, 1.66666716e-1f);
    e = fma(e, f, 4.99999970e-1f);
    e = fma(e, f * f, f);
    float half_power = as_type<float>((int(i) + 126) << 23);
    float y = half_power - 0.5f;
    float x = (half_power - y) - 0.5f;
    e = fma(e, half_power, x) + y;
    e = -(e + e);
    return a < 0.0f ? -e : e;
  }
  float r = -5.96761703e-4f;
  r = fma(r, s, 4.99119423e-3f);
  r = fma(r, s, -2.67681349e-2f);
  r = fma(r, s, 1.12819925e-1f);
  r = fma(r, s, -3.76125336e-1f);
  r = fma(r, s, 1.28379166e-1f);
  return fma(r, a, a);
#endif
}

template <int N>
inline void
sigmoid_vector(bool rounds, int type, thread const float* v, thread float* to) {
  for (int j = 0; j < N; ++j) {
    to[j] = exp_for(fabs(v[j]), rounds ? type : kFloat32);
  }
  round_step<N>(rounds, type, to);
  for (int j = 0; j < N; ++j) {
    to[j] = 1.0f + to[j];
  }
  round_step<N>(rounds, type, to);
  for (int j = 0; j < N; ++j) {
    to[j] = 1.0f / to[j];
  }
  round_step<N>(rounds, type, to);
  for (int j = 0; j < N; ++j) {
    to[j] = v[j] < 0.0f ? to[j] : 1.0f - to[j];
  }
  round_step<N>(rounds, type, to);
}

template <int N>
inline void gelu_vector(bool rounds, int type, thread float* v) {
  // The root of two, in the type.
  float root = rounds && type != kFloat32 ? 1.4140625f : 1.41421356237309505f;
  float y[N];
  for (int j = 0; j < N; ++j) {
    y[j] = v[j] / root;
  }
  round_step<N>(rounds, type, y);
  for (int j = 0; j < N; ++j) {
    y[j] = error_function(y[j]);
  }
  round_step<N>(rounds, type, y);
  for (int j = 0; j < N; ++j) {
    y[j] = 1.0f + y[j];
  }
  round_step<N>(rounds, type, y);
  for (int j = 0; j < N; ++j) {
    v[j] = v[j] * y[j];
  }
  round_step<N>(rounds, type, v);
  for (int j = 0; j < N; ++j) {
    v[j] = v[j] * 0.5f;
  }
  round_step<N>(rounds, type, v);
}

inline float relu(float v) {
  return v < 0.0f ? 0.0f : v; // NaN stays
}

// If it rounds, each step to this type.
template <int N>
inline void activate(bool rounds, int type, thread float* v) {
  if (activation == kGelu) {
    gelu_vector<N>(rounds, type, v);
  } else if (activation == kRelu2) {
    for (int j = 0; j < N; ++j) {
      v[j] = relu(v[j]) * relu(v[j]);
    }
    round_step<N>(rounds, type, v);
  } else if (activation != kNoActivation) {
    float s[N];
    sigmoid_vector<N>(rounds, type, v, s);
    for (int j = 0; j < N; ++j) {
      v[j] = activation == kSilu ? v[j] * s[j] : s[j];
    }
    if (activation == kSilu) {
      round_step<N>(rounds, type, v);
    }
  }
}

// silu to some units of float32's last place.
inline float quick_silu(float v) {
  float below = 1.0f + fast::exp(-v);
#ifdef __CUDACC__
  return __fdividef(v, below);
#else
  return v / below;
#endif
}

// The activation of results that are rounded to this type once.
template <int N>
inline void activate_result(int type, thread float* v) {
  if (activation == kSilu && type != kFloat32) {
    for (int j = 0; j < N; ++j) {
      v[j] = quick_silu(v[j]);
    }
  } else {
    activate<N>(false, kFloat32, v);
  }
}

// The activation's derivative in float32.
template <int N>
inline void activation_slope(thread const float* v, thread float* to) {
  if (activation == kGelu) {
    for (int j = 0; j < N; ++j) {
      float below = 0.5f + 0.5f * error_function(v[j] * 0.707106781186547524f);
      float density = precise::exp(v[j] * v[j] * -0.5f);
      to[j] = below + v[j] * 0.398942280401432678f * density;
    }
  } else if (activation == kRelu2) {
    for (int j = 0; j < N; ++j) {
      to[j] = 2.0f * relu(v[j]);
    }
  } else if (activation != kNoActivation) {
    float s[N];
    sigmoid_vector<N>(false, kFloat32, v, s);
    for (int j = 0; j < N; ++j) {
      float of_sigmoid = s[j] * (1.0f - s[j]);
      to[j] = activation == kSilu ? s[j] + v[j] * of_sigmoid : of_sigmoid;
    }
  } else {
    for (int j = 0; j < N; ++j) {
      to[j] = 1.0f;
    }
  }
}
