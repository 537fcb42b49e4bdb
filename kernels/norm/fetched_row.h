// Copyright (c) 2026 mlx_norms contributors
//
// A row whose vectors are all fetched before the first is used: a launch of few
// rows is bound by the latency of its loads. A residual is in any launch if it
// is needed only after a sum over another row.

#pragma once

#include "kernels/common/row_threads.h"

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
};
