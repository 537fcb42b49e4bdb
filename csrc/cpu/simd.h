// Copyright © 2026 mlx_norms contributors
//
// A native vector of float32 and its conversions, for the instruction set that
// this file is compiled for. All of it has internal linkage: no function here
// may be shared between instruction sets.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
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

// Whether 16-bit values are converted to float32 in one or two instructions.
#if defined(__AVX2__)
constexpr bool kConvertsFast = true;
#else
constexpr bool kConvertsFast = false;
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

inline Words as_words(Floats v) {
  return reinterpret_cast<Words>(v);
}

inline Floats as_floats(Words v) {
  return reinterpret_cast<Floats>(v);
}

// Converts to words. Left to itself, GCC converts half a vector at a time.
inline Words widen(Halves h) {
#if defined(__AVX512F__)
  return reinterpret_cast<Words>(
      _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(h)));
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(
      _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(h)));
#else
  return __builtin_convertvector(h, Words);
#endif
}

// The low halves of words below 2^16.
inline Halves low_halves(Words v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  auto packed = _mm256_packus_epi32(
      reinterpret_cast<__m256i>(v), reinterpret_cast<__m256i>(v));
  packed = _mm256_permute4x64_epi64(packed, 0x08);
  return reinterpret_cast<Halves>(_mm256_castsi256_si128(packed));
#elif defined(__SSE2__) && !defined(__AVX2__)
  // SSE2 packs with signed saturation, so the words are made signed first.
  auto words =
      _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(v), 16), 16);
  auto packed = _mm_packs_epi32(words, words);
  Halves halves;
  std::memcpy(&halves, &packed, sizeof(halves));
  return halves;
#else
  return __builtin_convertvector(v, Halves);
#endif
}

// --- float16 ---------------------------------------------------------------

#if defined(__AVX512F__)

inline Floats widen_half(Halves h) {
  return reinterpret_cast<Floats>(
      _mm512_cvtph_ps(reinterpret_cast<__m256i>(h)));
}
inline Halves narrow_half(Floats v) {
  return reinterpret_cast<Halves>(
      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__F16C__)

inline Floats widen_half(Halves h) {
  return reinterpret_cast<Floats>(
      _mm256_cvtph_ps(reinterpret_cast<__m128i>(h)));
}
inline Halves narrow_half(Floats v) {
  return reinterpret_cast<Halves>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
}

#else

inline Floats widen_half(Halves h) {
  Words bits = widen(h);
  Words magnitude = bits & 0x7fff;
  Words shifted = magnitude << 13;
  // Multiplying by 2^112 corrects the exponent's bias and converts subnormals.
  Words finite = as_words(as_floats(shifted) * 0x1p112f);
  Words quiet = magnitude > 0x7c00u ? Words{} + 0x00400000u : Words{};
  Words special = shifted | 0x7f800000u | quiet;
  Words wide = magnitude >= 0x7c00u ? special : finite;
  return as_floats(wide | (bits & 0x8000) << 16);
}

inline Halves narrow_half(Floats v) {
  Words bits = as_words(v);
  Words magnitude = bits & 0x7fffffff;
  // Rounds to nearest even; a carry out of the largest finite value is inf.
  Words normal =
      (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Adding 0.5 leaves a subnormal's bits, rounded, in the lowest bits.
  Words subnormal = as_words(as_floats(magnitude) + 0.5f) - 0x3f000000u;
  Words nan = 0x7e00u | ((magnitude >> 13) & 0x3ff);
  Words half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x47800000u ? Words{} + 0x7c00u : half;
  half = v != v ? nan : half;
  return low_halves(half | (bits & 0x80000000u) >> 16);
}

#endif

// --- bfloat16 --------------------------------------------------------------

// The high half is v rounded to the nearest bfloat16, ties to even.
inline Words round_bfloat_bits(Floats v) {
  Words bits = as_words(v);
  Words rounded = bits + 0x7fff + ((bits >> 16) & 1);
  Words quiet_nan = bits | 0x00400000u;
  return v != v ? quiet_nan : rounded;
}

inline Floats widen_bfloat(Halves h) {
  return as_floats(widen(h) << 16);
}

#if defined(__AVX512BF16__)

// The instruction treats subnormals as zeros.
inline Halves narrow_bfloat(Floats v) {
  constexpr int kSubnormal = 0x20;
  auto lanes = reinterpret_cast<__m512>(v);
  if (__builtin_expect(_mm512_fpclass_ps_mask(lanes, kSubnormal) != 0, 0)) {
    return low_halves(round_bfloat_bits(v) >> 16);
  }
  return reinterpret_cast<Halves>(_mm512_cvtneps_pbh(lanes));
}

#else

inline Halves narrow_bfloat(Floats v) {
  return low_halves(round_bfloat_bits(v) >> 16);
}

#endif

#if defined(__AVX512F__)

// Fewer instructions than a conversion there and back. NaN stays as it is.
inline Floats round_bfloat(Floats v) {
  auto lanes = reinterpret_cast<__m512>(v);
  auto bits = reinterpret_cast<__m512i>(v);
  auto odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  auto rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  rounded = _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
  auto number = _mm512_cmp_ps_mask(lanes, lanes, _CMP_ORD_Q);
  return reinterpret_cast<Floats>(_mm512_mask_and_epi32(
      bits, number, rounded, _mm512_set1_epi32(0xffff0000)));
}

#else

inline Floats round_bfloat(Floats v) {
  return as_floats(round_bfloat_bits(v) & 0xffff0000u);
}

#endif

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
  return widen_bfloat(load_bits(p));
}

inline void store(float* p, Floats v) {
  std::memcpy(p, &v, sizeof(v));
}
inline void store(Half* p, Floats v) {
  Halves h = narrow_half(v);
  std::memcpy(p, &h, sizeof(h));
}
inline void store(BFloat* p, Floats v) {
  Halves h = narrow_bfloat(v);
  std::memcpy(p, &h, sizeof(h));
}

// Stores v and returns it as it is stored.
inline Floats store_rounded(float* p, Floats v) {
  store(p, v);
  return v;
}
inline Floats store_rounded(Half* p, Floats v) {
  Halves h = narrow_half(v);
  std::memcpy(p, &h, sizeof(h));
  return widen_half(h);
}
inline Floats store_rounded(BFloat* p, Floats v) {
  Halves h = narrow_bfloat(v);
  std::memcpy(p, &h, sizeof(h));
  return widen_bfloat(h);
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
  return round_bfloat(v);
}

// How much of a vector is in the row.
struct Whole {};
struct Part {
  int n;
};

template <typename T>
inline Floats load(const T* p, Whole) {
  return load(p);
}
template <typename T>
inline void store(T* p, Floats v, Whole) {
  store(p, v);
}

// Lanes past the row's end are loaded as zeros and are not stored.
#if defined(__AVX512F__)

inline Floats load(const float* p, Part part) {
  return reinterpret_cast<Floats>(_mm512_maskz_loadu_ps((1u << part.n) - 1, p));
}
inline void store(float* p, Floats v, Part part) {
  _mm512_mask_storeu_ps(p, (1u << part.n) - 1, reinterpret_cast<__m512>(v));
}
template <typename T>
inline Floats load(const T* p, Part part) {
  T lanes[kWidth];
  auto bits = _mm256_maskz_loadu_epi16((1u << part.n) - 1, p);
  std::memcpy(lanes, &bits, sizeof(bits));
  return load(lanes);
}
template <typename T>
inline void store(T* p, Floats v, Part part) {
  __m256i bits;
  store(reinterpret_cast<T*>(&bits), v);
  _mm256_mask_storeu_epi16(p, (1u << part.n) - 1, bits);
}

#else

// Loads to registers: through memory, a vector would be read back before its
// elements have arrived.
inline Floats load(const float* p, Part part) {
  Floats v = {};
#pragma GCC unroll 8
  for (int i = 0; i < kWidth - 1; ++i) {
    if (i < part.n) {
      v[i] = p[i];
    }
  }
  return v;
}
template <typename T>
inline Floats load(const T* p, Part part) {
  Halves h = {};
#pragma GCC unroll 8
  for (int i = 0; i < kWidth - 1; ++i) {
    if (i < part.n) {
      h[i] = p[i].bits;
    }
  }
  return load(reinterpret_cast<const T*>(&h));
}
template <typename T>
inline void store(T* p, Floats v, Part part) {
  T lanes[kWidth];
  store(lanes, v);
#pragma GCC unroll 8
  for (int i = 0; i < kWidth - 1; ++i) {
    if (i < part.n) {
      p[i] = lanes[i];
    }
  }
}

#endif

// Calls f(i, Whole) for each vector of the row, and f(i, Part) for its tail.
template <typename F>
inline void for_vectors(int64_t width, F f) {
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) {
    f(i, Whole{});
  }
  if (i < width) {
    f(i, Part{static_cast<int>(width - i)});
  }
}

// v with lane n and all after it replaced.
inline Floats replace_from(Floats v, int64_t n, float value) {
  static const int32_t kIndices[] = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Ints index;
  std::memcpy(&index, kIndices, sizeof(index));
  Ints beyond = index >= static_cast<int32_t>(n);
  return beyond ? splat(value) : v;
}

// The sum of the lanes, by halves.
inline float sum_vector(Floats v) {
#if defined(__AVX512F__)
  __m256 lanes[2];
  std::memcpy(lanes, &v, sizeof(v));
  __m256 h = lanes[0] + lanes[1];
#elif defined(__AVX2__)
  __m256 h = reinterpret_cast<__m256>(v);
#endif
#if defined(__AVX2__)
  __m128 halves[2];
  std::memcpy(halves, &h, sizeof(h));
  __m128 q = halves[0] + halves[1];
#else
  Floats q = v;
#endif
  return (q[0] + q[2]) + (q[1] + q[3]);
}

} // namespace
