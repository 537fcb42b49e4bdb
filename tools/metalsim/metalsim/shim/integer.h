// Copyright © 2026 mlx_norms contributors
// <metal_integer>
#pragma once

#include "vector.h"

namespace msl {

template <Integer T>
inline constexpr int bits = sizeof(T) * 8;
template <Integer T>
using Wide = std::conditional_t<
    sizeof(T) == 8,
    std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
template <Integer T>
constexpr T saturated(Wide<T> x) {
  Wide<T> low = std::numeric_limits<T>::min(),
          high = std::numeric_limits<T>::max();
  return T(x < low ? low : x > high ? high : x);
}

} // namespace msl

namespace metal {

template <msl::Integer T>
constexpr T popcount(T x) {
  return T(__builtin_popcountll(std::make_unsigned_t<T>(x)));
}
template <msl::Integer T>
constexpr T clz(T x) {
  std::make_unsigned_t<T> u = x;
  return T(u ? __builtin_clzll(u) - (64 - msl::bits<T>) : msl::bits<T>);
}
template <msl::Integer T>
constexpr T ctz(T x) {
  std::make_unsigned_t<T> u = x;
  return T(u ? __builtin_ctzll(u) : msl::bits<T>);
}
template <msl::Integer T>
constexpr T reverse_bits(T x) {
  std::make_unsigned_t<T> u = x, r = 0;
  for (int i = 0; i < msl::bits<T>; i++) {
    r |= std::make_unsigned_t<T>(u >> i & 1) << (msl::bits<T> - 1 - i);
  }
  return T(r);
}
template <msl::Integer T>
constexpr T rotate(T x, T by) {
  std::make_unsigned_t<T> u = x;
  int k = int(by) & (msl::bits<T> - 1);
  return k ? T(u << k | u >> (msl::bits<T> - k)) : x;
}
template <msl::Integer T>
constexpr T extract_bits(T x, uint offset, uint count) {
  using U = std::make_unsigned_t<T>;
  if (count == 0) {
    return 0;
  }
  U high = U(x) << (msl::bits<T> - offset - count);
  return T(high) >> (msl::bits<T> - count);
}
template <msl::Integer T>
constexpr T insert_bits(T base, T inserted, uint offset, uint count) {
  using U = std::make_unsigned_t<T>;
  U mask = count < uint(msl::bits<T>) ? U((U(1) << count) - 1) << offset
                                      : ~U(0) << offset;
  return T((U(base) & ~mask) | (U(inserted) << offset & mask));
}
template <msl::Integer T>
constexpr T mulhi(T a, T b) {
  return T(msl::Wide<T>(a) * b >> msl::bits<T>);
}
template <msl::Integer T>
constexpr T mul24(T a, T b) {
  return a * b;
}
template <msl::Integer T>
constexpr T mad24(T a, T b, T c) {
  return a * b + c;
}
template <msl::Integer T>
constexpr std::make_unsigned_t<T> absdiff(T a, T b) {
  return a < b ? std::make_unsigned_t<T>(b) - a
               : std::make_unsigned_t<T>(a) - b;
}
template <msl::Integer T>
constexpr T addsat(T a, T b) {
  return msl::saturated<T>(msl::Wide<T>(a) + b);
}
template <msl::Integer T>
constexpr T subsat(T a, T b) {
  if constexpr (std::is_unsigned_v<T>) {
    return a < b ? T(0) : T(a - b);
  } else {
    return msl::saturated<T>(msl::Wide<T>(a) - b);
  }
}
template <msl::Integer T>
constexpr T hadd(T a, T b) {
  return T((msl::Wide<T>(a) + b) >> 1);
}
template <msl::Integer T>
constexpr T rhadd(T a, T b) {
  return T((msl::Wide<T>(a) + b + 1) >> 1);
}

} // namespace metal
