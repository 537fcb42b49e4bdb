// Copyright © 2026 mlx_norms contributors

#pragma once

#include <bit>
#include <cstdint>

namespace mlx_norms {

// An op's number. Ops are equal if theirs have the same bits: -0 is not 0.
class Number {
 public:
  constexpr Number(float value) : value_(value) {}
  constexpr operator float() const {
    return value_;
  }
  friend constexpr bool operator==(Number a, Number b) {
    return std::bit_cast<uint32_t>(a.value_) ==
        std::bit_cast<uint32_t>(b.value_);
  }
  friend constexpr bool operator==(Number a, float b) {
    return a.value_ == b;
  }

 private:
  float value_;
};

} // namespace mlx_norms
