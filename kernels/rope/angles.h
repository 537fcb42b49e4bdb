// Copyright (c) 2026 mlx_norms contributors
//
// Sines and cosines of angles in float32.

#pragma once

#include <metal_stdlib>

using namespace metal;

struct SineAndCosine {
  float sine;
  float cosine;
};

// The sine and cosine of `quarters` quarter turns and x more, at most an eighth
// of a turn.
inline SineAndCosine sine_and_cosine(int quarters, float x) {
  float z = x * x;
  float odd = fma(z, -0.00019574659f, 0.008332703f);
  odd = fma(odd, z, -0.16666663f);
  odd = fma(odd, z * x, x);
  float even = fma(z, 2.427958e-05f, -0.001388786f);
  even = fma(even, z, 0.041666728f);
  even = fma(even, z, -0.49999997f);
  even = fma(even, z, 1.0f);
  float sine = (quarters & 1) != 0 ? even : odd;
  float cosine = (quarters & 1) != 0 ? odd : even;
  return SineAndCosine{
      (quarters & 2) != 0 ? -sine : sine,
      ((quarters + 1) & 2) != 0 ? -cosine : cosine};
}

#ifdef __CUDACC__
// Apart: inlined for each of a thread's angles it would be most of a kernel,
// and a few rows would wait for its text.
__noinline__ SineAndCosine far_sine_and_cosine(float angle) {
  return SineAndCosine{precise::sin(angle), precise::cos(angle)};
}

constant constexpr float kFar = 105615.0f;

// As CUDA's, and so MLX's, for angles that are not far.
inline SineAndCosine sine_and_cosine(float angle) {
  int quarters = int(rint(angle * 0.63661975f));
  float x = fma(float(quarters), -1.5707963f, angle);
  x = fma(float(quarters), -7.5497894e-08f, x);
  x = fma(float(quarters), -5.390303e-15f, x);
  return sine_and_cosine(quarters, x);
}
#else
// Within 1e-7 up to 2^23. Metal's are exact beyond that, and ten times as long.
inline SineAndCosine sine_and_cosine(float angle) {
  // Less the nearest number of quarter turns, in parts whose products are
  // exact.
  float quarters = floor(fma(angle, 0.636619772f, 0.5f));
  float x = fma(quarters, -1.5703125f, angle);
  x = fma(quarters, -4.837512969970703e-4f, x);
  x = fma(quarters, -7.549789948768648e-8f, x);
  return sine_and_cosine(int(quarters), x);
}
#endif

// Stores them for as many elements as have the angle.
template <int SAME>
inline void
put_same(SineAndCosine of, thread float* sines, thread float* cosines) {
  for (int i = 0; i < SAME; ++i) {
    sines[i] = of.sine;
    cosines[i] = of.cosine;
  }
}

// Those of N angles, of which each SAME that adjoin are the same.
template <int N, int SAME>
inline void sines_and_cosines(
    thread const float* angles,
    thread float* sines,
    thread float* cosines) {
#ifdef __CUDACC__
  bool is_near = true;
  for (int j = 0; j < N; j += SAME) {
    is_near = is_near && fabs(angles[j]) < kFar;
  }
  if (!is_near) {
    for (int j = 0; j < N; j += SAME) {
      put_same<SAME>(far_sine_and_cosine(angles[j]), sines + j, cosines + j);
    }
    return;
  }
#endif
  // All at once: none waits for another.
  for (int j = 0; j < N; j += SAME) {
    put_same<SAME>(sine_and_cosine(angles[j]), sines + j, cosines + j);
  }
}
