// Copyright © 2026 mlx_norms contributors
//
// Activations of values of 16 bits, looked up: their polynomials take several
// times as long. A table is filled once per process, by them.

#pragma once

#include "csrc/cpu/activations.h"

namespace {

// With fewer elements the values are computed.
constexpr int64_t kElementsForTable = 32 * 1024;

// F of each value of T, in float32, by its bits.
template <typename T, typename F>
struct ValueTable {
  static constexpr int kValues = 1 << 16;
  alignas(64) float values[kValues];

  ValueTable() {
    for (int i = 0; i < kValues; i += kWidth) {
      T lanes[kWidth];
      for (int j = 0; j < kWidth; ++j) {
        lanes[j].bits = static_cast<uint16_t>(i + j);
      }
      store(values + i, F{}(load(lanes)));
    }
  }
};

// Null for float32.
template <typename T, typename F>
inline const float* table_of() {
  if constexpr (sizeof(T) == 2) {
    static const ValueTable<T, F> table;
    return table.values;
  } else {
    return nullptr;
  }
}

template <typename T>
inline Floats look_up(const float* table, const T* p) {
  Words index = widen(load_bits(p));
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_i32gather_ps(reinterpret_cast<__m512i>(index), table, 4));
#elif defined(__AVX2__)
  return reinterpret_cast<Floats>(
      _mm256_i32gather_ps(table, reinterpret_cast<__m256i>(index), 4));
#else
  Floats v;
  for (int i = 0; i < kWidth; ++i) {
    v[i] = table[index[i]];
  }
  return v;
#endif
}

template <Activation kActivation, typename R>
struct ActivationOf {
  Floats operator()(Floats v) const {
    return activated<kActivation, R>(v);
  }
};

template <Activation kActivation>
struct SlopeOf {
  Floats operator()(Floats v) const {
    return slope<kActivation>(v);
  }
};

} // namespace
