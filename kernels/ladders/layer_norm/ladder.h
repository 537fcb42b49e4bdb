// Copyright (c) 2026 mlx_norms contributors
//
// The LayerNorm ladder of courses on GPU kernels: one op in several kernels,
// each of which improves what the counts of the one before it show.
//
//   naive       nothing: a thread per row, in groups of 1024, and three passes
//   naive_32    occupancy alone: groups of 32, on more cores
//   shared      coalescing: a threadgroup per row, whose sums are trees in
//               threadgroup memory
//   simd        the tree's barriers: simd_sum, and one exchange
//   vectorized  the number of loads: four elements each
//   fused       a pass: the variance is E[x^2] - E[x]^2, lost beside a large
//               mean
//   robust      rows of any length: unaligned loads of four, and a tail
//   welford     a large mean, in one pass; and takes float16
//   regtiled    the second read: the row stays in registers
//   ours        the rounding of the mean, and the barriers of short rows
//               (kernels/norm/norm.metal)

#pragma once

#include "kernels/common/float_types.h"
#include "kernels/common/simds_sum.h"

constant bool rung_has_weight [[function_constant]];
constant bool rung_has_bias [[function_constant]];

// Applies weight and bias i to n. A kernel must not name one that it lacks: x
// stands in for it and is not read.
inline float
scaled(float n, device const float* weight, device const float* bias, int i) {
  n = rung_has_weight ? n * weight[i] : n;
  return rung_has_bias ? n + bias[i] : n;
}
