// Copyright © 2026 mlx_norms contributors
//
// A native vector of float32 and its conversions, for the instruction set that
// this file is compiled for. All of it has internal linkage: no function here
// may be shared between instruction sets.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef uint32_t Words __attribute__((vector_size(4 * kWidth)));
typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef uint16_t Halves __attribute__((vector_size(2 * kWidth)));

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

inline Floats splat(float value) {
  return Floats{} + value;
}

inline Words select(Ints mask, Words yes, Words no) {
  auto m = reinterpret_cast<Words>(mask);
  return (m & yes) | (~m & no);
}

inline Words as_words(Floats v) {
  return reinterpret_cast<Words>(v);
}

inline Floats as_floats(Words v) {
  return reinterpret_cast<Floats>(v);
}

inline Ints is_nan(Words magnitude) {
  return magnitude > 0x7f800000u;
}

// --- float16 ---------------------------------------------------------------

#if defined(__AVX512F__)

inline Floats widen_half(Halves h) {
  return reinterpret_cast<Floats>(
      _mm512_cvtph_ps(reinterpret_cast<__m256i>(h)));
}
inline Halves narrow_half(Floats v) {
  return reinterpret_cast<Halves>(_mm512_cvtps_ph(
      reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__F16C__)

inline Floats widen_half(Halves h) {
  return reinterpret_cast<Floats>(
      _mm256_cvtph_ps(reinterpret_cast<__m128i>(h)));
}
inline Halves narrow_half(Floats v) {
  return reinterpret_cast<Halves>(_mm256_cvtps_ph(
      reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
}

#else

inline Floats widen_half(Halves h) {
  Words bits = __builtin_convertvector(h, Words);
  Words magnitude = bits & 0x7fff;
  Words shifted = magnitude << 13;
  // A product by 2^112 moves the exponent's bias and makes subnormals right.
  Words finite = as_words(as_floats(shifted) * 0x1p112f);
  Words quiet = select(magnitude > 0x7c00u, Words{} + 0x00400000u, Words{});
  Words special = shifted | 0x7f800000u | quiet;
  return as_floats(
      select(magnitude >= 0x7c00u, special, finite) | (bits & 0x8000) << 16);
}

inline Halves narrow_half(Floats v) {
  Words bits = as_words(v);
  Words magnitude = bits & 0x7fffffff;
  // Rounds to nearest even; a carry out of the largest finite value is inf.
  Words normal =
      (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // The sum with 0.5 leaves a subnormal's bits, rounded, in its last places.
  Words subnormal = as_words(as_floats(magnitude) + 0.5f) - 0x3f000000u;
  Words nan = 0x7e00u | ((magnitude >> 13) & 0x3ff);
  Words half = select(magnitude < 0x38800000u, subnormal, normal);
  half = select(magnitude >= 0x47800000u, Words{} + 0x7c00u, half);
  half = select(is_nan(magnitude), nan, half);
  return __builtin_convertvector(half | (bits & 0x80000000u) >> 16, Halves);
}

#endif

// --- bfloat16 --------------------------------------------------------------

// The float32 bits of v rounded to the nearest bfloat16, ties to even.
inline Words round_bfloat_bits(Floats v) {
  Words bits = as_words(v);
  Words rounded = bits + 0x7fff + ((bits >> 16) & 1);
  Words quiet_nan = bits | 0x00400000u;
  return select(is_nan(bits & 0x7fffffff), quiet_nan, rounded) & 0xffff0000u;
}

// --- Loads and stores --------------------------------------------------------

inline Halves load_bits(const void* p) {
  Halves h;
  std::memcpy(&h, p, sizeof(h));
  return h;
}

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline Floats load(const Half* p) {
  return widen_half(load_bits(p));
}
inline Floats load(const BFloat* p) {
  return as_floats(__builtin_convertvector(load_bits(p), Words) << 16);
}

inline void store(float* p, Floats v) {
  std::memcpy(p, &v, sizeof(v));
}
inline void store(Half* p, Floats v) {
  Halves h = narrow_half(v);
  std::memcpy(p, &h, sizeof(h));
}
inline void store(BFloat* p, Floats v) {
  Halves h = __builtin_convertvector(round_bfloat_bits(v) >> 16, Halves);
  std::memcpy(p, &h, sizeof(h));
}

template <typename T>
inline Floats round_to(Floats v);

template <>
inline Floats round_to<float>(Floats v) {
  return v;
}
template <>
inline Floats round_to<Half>(Floats v) {
  return widen_half(narrow_half(v));
}
template <>
inline Floats round_to<BFloat>(Floats v) {
  return as_floats(round_bfloat_bits(v));
}

// How much of a vector lies in the row.
struct Whole {};
struct Part {
  int64_t n;
};

template <typename T>
inline Floats load(const T* p, Whole) {
  return load(p);
}
template <typename T>
inline void store(T* p, Floats v, Whole) {
  store(p, v);
}
inline Floats keep(Floats v, Whole) {
  return v;
}

// Lanes past the row's end read as zero and are not written.
template <typename T>
inline Floats load(const T* p, Part part) {
  T lanes[kWidth] = {};
  std::memcpy(lanes, p, part.n * sizeof(T));
  return load(lanes);
}
template <typename T>
inline void store(T* p, Floats v, Part part) {
  T lanes[kWidth];
  store(lanes, v);
  std::memcpy(p, lanes, part.n * sizeof(T));
}
inline Floats keep(Floats v, Part part) {
  float lanes[kWidth] = {};
  std::memcpy(lanes, &v, part.n * sizeof(float));
  return load(lanes);
}

// Calls f(i, Whole) for each vector of the row, and f(i, Part) for its tail.
template <typename F>
inline void for_vectors(int64_t width, F f) {
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) {
    f(i, Whole{});
  }
  if (i < width) {
    f(i, Part{width - i});
  }
}

} // namespace
