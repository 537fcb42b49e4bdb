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

#ifdef __CUDACC__
// Those of MLX's kernel.
inline SineAndCosine sine_and_cosine(float angle) {
  return SineAndCosine{precise::sin(angle), precise::cos(angle)};
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
  float z = x * x;
  float odd = fma(z, -1.9515295891e-4f, 8.3321608736e-3f);
  odd = fma(odd, z, -1.6666654611e-1f);
  odd = fma(odd * z, x, x);
  float even = fma(z, 2.443315711809948e-5f, -1.388731625493765e-3f);
  even = fma(even, z, 4.166664568298827e-2f);
  even = fma(even * z, z, fma(z, -0.5f, 1.0f));
  int quarter = int(quarters) & 3;
  float sine = (quarter & 1) != 0 ? even : odd;
  float cosine = (quarter & 1) != 0 ? odd : even;
  return SineAndCosine{
      (quarter & 2) != 0 ? -sine : sine,
      ((quarter + 1) & 2) != 0 ? -cosine : cosine};
}
#endif
