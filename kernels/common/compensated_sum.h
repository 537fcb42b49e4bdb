// Copyright (c) 2026 mlx_norms contributors
//
// Kahan summation: the error does not grow with the number of terms.

#pragma once

#include "kernels/common/float_types.h"

inline void add_compensated(thread float& sum, thread float& error, float v) {
  float y = v - error;
  float next = sum + y;
  float lost = (next - sum) - y;
  // An infinite sum has NaN in `lost`, which must not spread.
  error = is_nan(lost) ? 0.0f : lost;
  sum = next;
}
