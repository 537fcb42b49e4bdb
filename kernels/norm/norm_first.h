// Copyright (c) 2026 mlx_norms contributors
//
// The norm of x that comes before a residual is added. Early, each step rounds.

#pragma once

#include "kernels/norm/fetched_row.h"
#include "kernels/norm/steps.h"

constant bool norm_first [[function_constant]];
constant bool has_post_weight [[function_constant]];
constant int post_weight_flags [[function_constant]];

// Normalizes and weighs vector k of x, which is `of`.
template <int N, int V>
inline void normalize_first(
    Statistics of_x,
    thread const FetchedRow<N, V>& weight,
    float weight_offset,
    RowIn x,
    int k,
    Span<N> of,
    thread HeldRow<N, V>& held,
    thread float* v) {
  held.get_vector(x, k, of, v);
  normalize<N>(of_x, x.type, v);
  if (has_post_weight) {
    weight.weigh(k, of, weight_offset, v);
    round_step<N>(round_early, x.type, v);
  }
}
