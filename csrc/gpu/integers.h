// Copyright © 2026 mlx_norms contributors

#pragma once

#include <cstdint>
#include <limits>

namespace mlx_norms {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

// Whether a kernel's int holds the value and its negative.
inline bool fits_int32(int64_t value) {
  return value >= -kInt32Max && value <= kInt32Max;
}

// a / b rounded up, without overflow for any a.
template <typename T>
T ceil_div(T a, T b) {
  return a / b + (a % b != 0);
}

} // namespace mlx_norms
