// Copyright (c) 2026 mlx_norms contributors
//
// The norm of x that comes before a residual is added. Early, each step rounds.

#pragma once

#include "kernels/norm/fetched_row.h"
#include "kernels/norm/statistics.h"

constant bool norm_first [[function_constant]];
constant bool has_post_weight [[function_constant]];
constant int post_weight_flags [[function_constant]];

// Reads x, and holds it if it is one chunk; the statistics of its row.
template <int N, int V>
inline Statistics read_first(
    thread const FetchedRow<N, V>& x,
    thread RowThreads& threads,
    int length,
    float eps,
    thread HeldRow<N, V>& held) {
  float2 first = float2(0.0f);
  for (int chunk = 0; next_chunk(chunk, length);
       chunk += chunk_length<N, V>()) {
    float2 of_chunk = float2(0.0f);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, chunk, k, length);
      float v[N];
      if (fetch_first) {
        x.values(k, of, v);
        held.put_vector(k, x.row.type, v);
      } else {
        held.read_vector(x.row, k, of, v);
      }
      for (int j = 0; j < N; ++j) {
        of_chunk = add_first(of_chunk, v[j]);
      }
    }
    first += of_chunk;
  }
  return statistics<N, V>(first, x.row, threads, length, eps, held);
}

// Normalizes and weighs vector k of x, which is `of`.
template <int N, int V>
inline void normalize_first(
    Statistics of_x,
    thread const FetchedRow<N, V>& weight,
    float weight_offset,
    bool rounds,
    RowIn x,
    int k,
    Span<N> of,
    thread HeldRow<N, V>& held,
    thread float* v) {
  held.get_vector(x, k, of, v);
  for (int j = 0; j < N; ++j) {
    v[j] = of_x.normalize(v[j]);
  }
  if (rounds) {
    round_vector<N>(x.type, v);
  }
  if (has_post_weight) {
    float w[N];
    weight.values(k, of, w);
    add_offset<N>(weight_offset, w);
    for (int j = 0; j < N; ++j) {
      v[j] *= w[j];
    }
    if (rounds) {
      round_vector<N>(x.type, v);
    }
  }
}
