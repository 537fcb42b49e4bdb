// Copyright (c) 2026 mlx_norms contributors

#pragma once

#include "kernels/team.h"

constant bool centre [[function_constant(2)]]; // LayerNorm, else RMSNorm

struct Statistics {
  float mean;
  float shift;      // the mean, or 0 where it has been subtracted from the row
  float correction; // the mean of what the rounded mean leaves
  float rstd;

  float normalise(float v) const {
    return (v - shift - correction) * rstd;
  }
};

// The sums of the deviations from `mean` and of their squares. With `subtract`,
// v becomes the deviations.
template <int N, int V>
inline float2 deviations(
    RowIn row,
    thread Team& team,
    int length,
    float mean,
    float correction,
    bool subtract,
    thread float* v) {
  float2 sum = float2(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    if (looped) {
      read_chunk<N, V>(row, team, chunk, length, v);
    }
    for (int k = 0; k < V; ++k) {
      int i = element<N>(team, chunk, k);
      float2 terms = float2(0.0f);
      for (int j = 0; j < N; ++j) {
        float d = v[k * N + j] - mean - correction;
        d = in_row(i + j, 1, length) ? d : 0.0f;
        v[k * N + j] = subtract ? d : v[k * N + j];
        terms = float2(terms.x + d, fma(d, d, terms.y));
      }
      sum += terms;
    }
  }
  return team.reduce(sum);
}

// What to sum over a row first.
template <int N>
inline float first_sum(thread const float* v) {
  float sum = 0.0f;
  for (int j = 0; j < N; ++j) {
    sum = centre ? sum + v[j] : fma(v[j], v[j], sum);
  }
  return sum;
}

// From the thread's part of the first sum; `v` holds the row, or else it is
// read again. With `subtract`, a row that v holds loses its mean.
template <int N, int V>
inline Statistics statistics(
    float first,
    RowIn row,
    thread Team& team,
    int length,
    float eps,
    bool subtract,
    thread float* v) {
  float mean = team.reduce(first) / float(length);
  if (!centre) {
    return Statistics{0.0f, 0.0f, 0.0f, 1.0f / precise::sqrt(mean + eps)};
  }
  bool shifts = subtract && !looped;
  float2 sums = deviations<N, V>(row, team, length, mean, 0.0f, shifts, v) /
      float(length);
  float shift = shifts ? 0.0f : mean;
  float square = sums.x * sums.x;
  float variance = sums.y - square;
  // One way for the whole team, whose threads all have the same sums.
  if (variance < 16.0f * square) {
    // The mean's own error outweighs the spread, and the difference of the two
    // would be mostly rounding.
    float2 again = deviations<N, V>(row, team, length, shift, sums.x, false, v);
    variance = again.y / float(length);
  }
  return Statistics{mean, shift, sums.x, 1.0f / precise::sqrt(variance + eps)};
}
