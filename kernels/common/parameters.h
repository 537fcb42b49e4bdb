// Copyright (c) 2026 mlx_norms contributors
//
// Weights and biases. By its layout, a parameter has row i % heads for row i of
// x, or one row for all.

#pragma once

#include "kernels/common/row_threads.h"

constant bool has_weight [[function_constant(4)]];
constant bool has_bias [[function_constant(5)]];
constant bool has_weight_offset [[function_constant(6)]];
constant int weight_flags [[function_constant(7)]];
constant int bias_flags [[function_constant(8)]];

template <int N>
inline void add_offset(float offset, thread float* w) {
  for (int j = 0; j < N; ++j) {
    w[j] = has_weight_offset ? w[j] + offset : w[j];
  }
}
