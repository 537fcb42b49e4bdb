// Copyright © 2026 mlx_norms contributors
//
// What the kernels of group norms do to vectors, of which each lane has a
// channel or a group of its own.

#pragma once

#include "csrc/cpu/activations.h"
#include "csrc/cpu/simd.h"

namespace {

// Calls f(i, part) for each i below n, with the parts, of which there are four,
// in turn. Parts by their number would be kept in memory.
template <typename Count, typename Part, typename F>
[[gnu::always_inline]] inline void
in_four_parts(Count n, Part (&parts)[4], F f) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    f(i, parts[0]);
    f(i + 1, parts[1]);
    f(i + 2, parts[2]);
    f(i + 3, parts[3]);
  }
  if (i < n) {
    f(i, parts[0]);
  }
  if (i + 1 < n) {
    f(i + 1, parts[1]);
  }
  if (i + 2 < n) {
    f(i + 2, parts[2]);
  }
}

// The sum of term(i) for each i below n, in four parts.
template <typename Count, typename F>
[[gnu::always_inline]] inline Floats sum_of(Count n, F term) {
  Floats parts[4] = {};
  in_four_parts(n, parts, [=](int64_t i, Floats& sum) { sum += term(i); });
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// What turns x into n, and the cotangent into g.
template <Activation kActivation>
struct Differentiated {
  Floats mean, rstd, shift, weight, bias;

  Floats normalized(Floats x) const {
    return (x - mean) * rstd + shift;
  }
  Floats result(Floats x) const {
    return activated<kActivation, float>(normalized(x) * weight + bias);
  }
  Floats sloped(Floats g, Floats n) const {
    if constexpr (kActivation != Activation::None) {
      g = g * slope<kActivation>(n * weight + bias);
    }
    return g;
  }
};

// Calls f with a type, as with_activation, of those that group norms have.
template <typename F>
inline void with_result_activation(Activation activation, F f) {
  with_activation(activation, [&](auto flag) {
    constexpr auto kActivation = decltype(flag)::value;
    if constexpr (
        kActivation != Activation::Sigmoid &&
        kActivation != Activation::Relu2) {
      f(flag);
    }
  });
}

} // namespace
