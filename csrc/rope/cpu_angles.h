// Copyright © 2026 mlx_norms contributors
//
// Sines and cosines with the bits of MLX's ops on the CPU, whose polynomials
// these are (mlx/backend/cpu/simd/math.h).

#pragma once

#include "csrc/cpu/activations.h"

namespace {

struct SineAndCosine {
  Floats sine, cosine;
};

// Reduces what is at most 2^23, where a float tells one eighth of a turn from
// the next.
inline SineAndCosine reduced_sine_and_cosine(Floats v) {
  Floats x = magnitude(v);
  // The nearest even number of eighths of a turn, which is subtracted.
  Ints whole = __builtin_convertvector(x * 1.27323954473516f, Ints);
  Words eighths = (reinterpret_cast<Words>(whole) + 1) & ~1u;
  Floats y = __builtin_convertvector(reinterpret_cast<Ints>(eighths), Floats);
  x = fused(y, splat(-0.78515625f), x);
  x = fused(y, splat(-2.4187564849853515625e-4f), x);
  x = fused(y, splat(-3.77489497744594108e-8f), x);

  Floats z = x * x;
  Floats even =
      fused(z, splat(2.443315711809948e-5f), splat(-1.388731625493765e-3f));
  even = fused(even, z, splat(4.166664568298827e-2f));
  even = fused(z, splat(-0.5f), even * z * z) + 1.0f;
  Floats odd = fused(z, splat(-1.9515295891e-4f), splat(8.3321608736e-3f));
  odd = fused(odd, z, splat(-1.6666654611e-1f));
  odd = fused(x, odd * z, x);

  auto swapped = (eighths & 2) != 0;
  Floats sine = swapped ? even : odd;
  Floats cosine = swapped ? odd : even;
  // Signs as bits.
  Words below = reinterpret_cast<Words>(v < 0.0f) & 0x80000000u;
  Words negative = below ^ ((eighths & 4) << 29);
  Words turned = (~(eighths - 2) & 4) << 29;
  return {
      as_floats(as_words(sine) ^ negative),
      as_floats(as_words(cosine) ^ turned)};
}

inline SineAndCosine sine_and_cosine(Floats v) {
  auto both = reduced_sine_and_cosine(v);
  Floats x = magnitude(v);
  for (int i = 0; i < kWidth; ++i) {
    if (__builtin_expect(x[i] > 8388608.0f, 0)) {
      both.sine[i] = __builtin_sinf(v[i]);
      both.cosine[i] = __builtin_cosf(v[i]);
    }
  }
  return both;
}

} // namespace
