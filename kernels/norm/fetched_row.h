// Copyright (c) 2026 mlx_norms contributors
//
// A row whose vectors are all fetched before the first is used: a launch of few
// rows is bound by the latency of its loads. A residual is in any launch if it
// is needed only after a sum over another row.

#pragma once

#include "kernels/common/parameters.h"
#include "kernels/norm/statistics.h"

constant bool fetch_first [[function_constant]];
constant bool fetch_residual [[function_constant]];

template <int N, int V, bool RESIDUAL = false>
struct FetchedRow {
  RowIn row;
  uint4 bits[V];

  bool has(Span<N> of) const thread {
    return (fetch_first || (RESIDUAL && fetch_residual && !looped)) &&
        can_fetch<N>(row, of);
  }

  void fetch_all(RowIn from, thread const RowThreads& threads, int length)
      thread {
    assign(row, from);
    for (int k = 0; k < V; ++k) {
      Span<N> of = span_of<N>(threads, 0, k, length);
      if (has(of)) {
        bits[k] = fetch<N>(row, of);
      }
    }
  }

  // Vector k, which is `of`, as it lies in memory, if it can be fetched.
  uint4 packed(int k, Span<N> of) const thread {
    return fetch_first ? bits[k] : fetch<N>(row, of);
  }

  // Vector k, which is `of`.
  void values(int k, Span<N> of, thread float* v) const thread {
    if (has(of)) {
      unpack<N>(bits[k], row.type, v);
    } else {
      read_own<N>(row, of, v);
    }
  }

  // Multiplies the elements v of vector k, which is `of`, by a weight's.
  void weigh(int k, Span<N> of, float offset, thread float* v) const thread {
    float w[N];
    values(k, of, w);
    add_offset<N>(offset, w);
    for (int j = 0; j < N; ++j) {
      v[j] = v[j] * w[j];
    }
  }
};

// Reads x, and holds it if it is one chunk; the statistics of its row.
template <int N, int V>
inline Statistics read_row(
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
