// Copyright (c) 2026 mlx_norms contributors

#pragma once

#include "kernels/team.h"

constant bool centre [[function_constant(2)]]; // LayerNorm, else RMSNorm

struct Statistics {
  float mean;
  float correction; // the mean of what the rounded mean leaves
  float rstd;

  float normalise(float v) const {
    return (v - mean - correction) * rstd;
  }
};

// The sums of the deviations from `mean` and of their squares.
template <int N, int V>
inline float2 deviations(
    RowIn row,
    thread Team& team,
    int length,
    float mean,
    float correction,
    thread float* v) {
  float2 sum = float2(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    if (looped) {
      read_chunk<N, V>(row, team, chunk, length, v);
    }
    for (int k = 0; k < V; ++k) {
      int i = element<N>(team, chunk, k);
      float2 terms[N];
      for (int j = 0; j < N; ++j) {
        float d = i + j < length ? v[k * N + j] - mean - correction : 0.0f;
        terms[j] = float2(d, d * d);
      }
      sum += sum_vector<N>(terms);
    }
  }
  return team.reduce(sum);
}

// What to sum over a row first.
template <int N>
inline float first_sum(thread const float* v) {
  float terms[N];
  for (int j = 0; j < N; ++j) {
    terms[j] = centre ? v[j] : v[j] * v[j];
  }
  return sum_vector<N>(terms);
}

// From the thread's part of the first sum; `v` holds the row, or else it is
// read again.
template <int N, int V>
inline Statistics statistics(
    float first,
    RowIn row,
    thread Team& team,
    int length,
    float eps,
    thread float* v) {
  float mean = team.reduce(first) / float(length);
  if (!centre) {
    return Statistics{0.0f, 0.0f, 1.0f / precise::sqrt(mean + eps)};
  }
  float2 sums =
      deviations<N, V>(row, team, length, mean, 0.0f, v) / float(length);
  float square = sums.x * sums.x;
  float variance = sums.y - square;
  // One way for the whole team, whose threads all have the same sums.
  if (variance < 16.0f * square) {
    // The mean's own error outweighs the spread, and the difference of the two
    // would be mostly rounding.
    variance =
        deviations<N, V>(row, team, length, mean, sums.x, v).y / float(length);
  }
  return Statistics{mean, sums.x, 1.0f / precise::sqrt(variance + eps)};
}
