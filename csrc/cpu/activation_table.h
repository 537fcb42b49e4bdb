// Copyright © 2026 mlx_norms contributors
//
// Activations of values of 16 bits, looked up: their polynomials take several
// times as long. A table is filled once per process, by them.

#pragma once

#include "csrc/cpu/activations.h"

namespace {

// With fewer elements the values are computed.
constexpr int64_t kElementsForTable = 32 * 1024;

template <Activation kActivation, typename R>
struct ActivationOf {
  using Result = R; // that it is rounded to
  static constexpr bool kCheap = is_cheap(kActivation);
  // Its rows of 16 bits take no loop of their own: code is what it costs.
  static constexpr bool kSmall = kActivation == Activation::Relu2;

  Floats operator()(Floats v) const {
    return activated<kActivation, R>(v);
  }
};

// F of each value of T, by its bits, in F's Result.
template <typename T, typename F>
struct ValueTable {
  using Result = typename F::Result;
  static constexpr int kValues = 1 << 16;
  alignas(64) Result values[kValues + 1]; // of 16 bits, two are read at once

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
inline const typename F::Result* table_of() {
  if constexpr (sizeof(T) == 2) {
    static const ValueTable<T, F> table;
    return table.values;
  } else {
    return nullptr;
  }
}

// The values in words of which a table's are the low part.
inline Floats as_values(Words words, const float*) {
  return as_floats(words);
}
inline Floats as_values(Words words, const Half*) {
  return widen_half(low_halves(words & 0xffffu));
}
inline Floats as_values(Words words, const BFloat*) {
  return as_floats(words << 16);
}

// Elements of the table, of 32 bits or less, as the low parts of words.
template <typename R>
inline Words gather(const R* table, Words index) {
#if defined(__AVX512F__)
  return reinterpret_cast<Words>(_mm512_i32gather_epi32(
      reinterpret_cast<__m512i>(index), table, sizeof(R)));
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(_mm256_i32gather_epi32(
      reinterpret_cast<const int*>(table),
      reinterpret_cast<__m256i>(index),
      sizeof(R)));
#else
  Words words = {};
  for (int i = 0; i < kWidth; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, table + index[i], sizeof(R));
    words[i] = word;
  }
  return words;
#endif
}

template <typename R, typename T>
inline Floats look_up(const R* table, const T* p) {
  return as_values(gather(table, widen(load_bits(p))), table);
}

// A value and its slope side by side, in one cache line.
struct Pair {
  float value, slope;
};

inline void store(Pair* p, ValueAndSlope v) {
  for (int i = 0; i < kWidth; ++i) {
    p[i] = {v.value[i], v.slope[i]};
  }
}

template <typename T>
inline ValueAndSlope look_up(const Pair* table, const T* p) {
  Words index = widen(load_bits(p));
#if defined(__AVX512F__)
  auto lanes = reinterpret_cast<__m512i>(index);
  auto pairs = [=](__m256i half) {
    return _mm512_castpd_ps(_mm512_i32gather_pd(half, table, sizeof(Pair)));
  };
  auto low = pairs(_mm512_castsi512_si256(lanes));
  auto high = pairs(_mm512_extracti64x4_epi64(lanes, 1));
  auto values = _mm512_setr_epi32(
      0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  auto slopes = _mm512_add_epi32(values, _mm512_set1_epi32(1));
  return {
      reinterpret_cast<Floats>(_mm512_permutex2var_ps(low, values, high)),
      reinterpret_cast<Floats>(_mm512_permutex2var_ps(low, slopes, high))};
#else
  index *= 2;
  return {
      as_floats(gather(&table->value, index)),
      as_floats(gather(&table->slope, index))};
#endif
}

template <Activation kActivation>
struct ValueAndSlopeOf {
  using Result = Pair;

  ValueAndSlope operator()(Floats v) const {
    return value_and_slope<kActivation>(v);
  }
};

} // namespace
