// Copyright (c) 2026 mlx_norms contributors
//
// Weights and biases. By its layout, a parameter has row i % heads for row i of
// x, or one row for all.

#pragma once

#include "kernels/common/row_threads.h"

constant bool has_weight [[function_constant]];
constant bool has_bias [[function_constant]];
constant bool has_weight_offset [[function_constant]];
constant int weight_flags [[function_constant]];
constant int bias_flags [[function_constant]];

template <int N>
inline void add_offset(float offset, thread float* w) {
  for (int j = 0; j < N; ++j) {
    w[j] = has_weight_offset ? w[j] + offset : w[j];
  }
}
