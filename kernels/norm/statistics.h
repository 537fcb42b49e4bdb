// Copyright (c) 2026 mlx_norms contributors
//
// The variance is the mean square less the square of the mean, unless that
// difference loses its digits: then it is computed from the deviations.

#pragma once

#include "kernels/common/row_threads.h"
#include "kernels/norm/held_row.h"

constant bool center [[function_constant]]; // LayerNorm, else RMSNorm
constant bool l2 [[function_constant]]; // the sum of squares, not their mean
// A root below eps is eps, which is else added under the root.
constant bool eps_bounds [[function_constant]];

struct Statistics {
  float mean;
  float correction; // the mean of v - mean, which rounding leaves
  float rstd;

  float normalize(float v) const thread {
    return center ? (v - mean - correction) * rstd : v * rstd;
  }
};

// Whether `variance`, a mean square less `square`, the square of a mean, is
// mostly rounding error or beyond float32.
inline bool is_lost(float variance, float square) {
  return !is_finite(variance) || variance < 16.0f * square;
}

// A variance beyond float32 makes the row NaN: inf would make it zeros.
inline float finite_or_nan(float variance) {
  return is_finite(variance) ? variance : as_type<float>(0x7fc00000u);
}

// The factor of a row whose squares have this mean or, with l2, sum.
inline float root_factor(float square, float eps) {
  float factor = precise::rsqrt(eps_bounds ? square : square + eps);
  return eps_bounds && factor > 1.0f / eps ? 1.0f / eps : factor;
}

// Whether the factor is that of eps alone, so that it has no gradient.
inline bool is_constant(float factor, float eps) {
  return eps_bounds && factor >= 1.0f / eps;
}

// Adds v to the first sums over a row: of v and of v * v.
inline float2 add_first(float2 sums, float v) {
  return float2(center ? sums.x + v : 0.0f, fma(v, v, sums.y));
}

// The sums over the row of the deviations from mean + correction and of their
// squares.
template <int N, int V>
inline float2 deviation_sums(
    RowIn row,
    thread RowThreads& threads,
    int length,
    float mean,
    float correction,
    thread HeldRow<N, V>& held) {
  float2 sums = float2(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float v[N];
      held.get_vector(row, k, of, v);
      for (int j = 0; j < N; ++j) {
        float d = v[j] - mean - correction;
        d = of.has(j) ? d : 0.0f;
        sums = float2(sums.x + d, fma(d, d, sums.y));
      }
    }
  }
  return threads.reduce(sums);
}

// `first` is this thread's part of the first sums.
template <int N, int V>
inline Statistics statistics(
    float2 first,
    RowIn row,
    thread RowThreads& threads,
    int length,
    float eps,
    thread HeldRow<N, V>& held) {
  if (!center) {
    float square = threads.reduce(first.y);
    square = l2 ? square : square / float(length);
    return Statistics{0.0f, 0.0f, root_factor(square, eps)};
  }
  first = threads.reduce(first) / float(length);
  float mean = first.x;
  float correction = 0.0f;
  float variance = first.y - mean * mean;
  // All of a row's threads have the same sums, and so the same answer.
  bool lost = is_lost(variance, mean * mean);
  if (for_any_row(lost)) {
    float2 of_d = deviation_sums<N, V>(row, threads, length, mean, 0.0f, held) /
        float(length);
    if (lost) {
      correction = of_d.x;
      variance = of_d.y - correction * correction;
      lost = is_lost(variance, correction * correction);
    }
    if (for_any_row(lost)) {
      of_d =
          deviation_sums<N, V>(row, threads, length, mean, correction, held) /
          float(length);
      if (lost) {
        correction += of_d.x;
        variance = finite_or_nan(of_d.y - of_d.x * of_d.x);
      }
    }
  }
  return Statistics{mean, correction, precise::rsqrt(variance + eps)};
}
