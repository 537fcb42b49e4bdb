// Copyright © 2026 mlx_norms contributors
//
// Dtypes and flags as types, for which loops are compiled.

#pragma once

#include "csrc/cpu/rows.h"
#include "csrc/cpu/simd.h"

namespace {

using mlx_norms::cpu::Float;

template <typename T>
struct Type {
  using type = T;
};

template <typename F>
inline void with_type(Float type, F f) {
  switch (type) {
    case Float::f32:
      return f(Type<float>{});
    case Float::f16:
      return f(Type<Half>{});
    case Float::bf16:
      return f(Type<BFloat>{});
  }
}

// A flag as a type, for which a loop is compiled. Loops that matter less have a
// bool instead.
template <bool kValue>
struct Flag {
  static constexpr bool value = kValue;

  constexpr operator bool() const {
    return kValue;
  }
};

template <typename F>
inline void with_flag(bool flag, F f) {
  return flag ? f(Flag<true>{}) : f(Flag<false>{});
}

} // namespace
