// Copyright (c) 2026 mlx_norms contributors
//
// The product with a factor, a row or a number, before a residual is added.

#pragma once

#include "kernels/norm/fetched_row.h"

constant bool has_factor [[function_constant]];
constant bool has_number [[function_constant]];
constant int factor_flags [[function_constant]];
constant bool round_factored [[function_constant]]; // to x's dtype

// Multiplies the elements v of x by those of a factor.
template <int N>
inline void
multiply(thread const float* factor, float number, int type, thread float* v) {
  for (int j = 0; j < N; ++j) {
    v[j] = v[j] * (has_number ? number : factor[j]);
  }
  if (round_factored) {
    round_vector<N>(type, v);
  }
}
