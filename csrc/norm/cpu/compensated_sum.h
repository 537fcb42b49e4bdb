// Copyright © 2026 mlx_norms contributors
//
// Sums over rows, with their rounding errors.

#pragma once

#include "csrc/cpu/simd.h"
#include "csrc/norm/cpu_kernels.h"

namespace {

using namespace mlx_norms::cpu;

inline void add_compensated(CompensatedSum to, int64_t i, Floats v) {
  Floats sum = load(to.sum + i);
  Floats y = v - load(to.error + i);
  Floats next = sum + y;
  Floats error = (next - sum) - y;
  // An infinite sum's error is NaN, which must not spread.
  store(to.error + i, error == error ? error : Floats{});
  store(to.sum + i, next);
}

// Adds the sums of the latest rows to the compensated sums, and clears them.
inline void add_partial(CompensatedSum to, int64_t size) {
  for (int64_t i = 0; i < size; i += kWidth) {
    add_compensated(to, i, load(to.partial + i));
    store(to.partial + i, Floats{});
  }
}

} // namespace
