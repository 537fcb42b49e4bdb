// Copyright (c) 2026 mlx_norms contributors
//
// A row whose vectors are all fetched before the first is used: a launch of few
// rows is bound by the latency of its loads.

#pragma once

#include "kernels/common/row_threads.h"

constant bool fetch_first [[function_constant(15)]];

template <int N, int V>
struct FetchedRow {
  RowIn row;
  uint4 bits[V];

  void fetch_all(RowIn from, thread const RowThreads& threads, int length) {
    assign(row, from);
    for (int k = 0; k < V; ++k) {
      if (fetch_first && can_fetch<N>(row)) {
        bits[k] = fetch<N>(row, element<N>(threads, 0, k), length);
      }
    }
  }

  // Vector k, which starts at element i.
  void values(int k, int i, int length, thread float* v) const {
    if (fetch_first && is_fetched<N>(row, i, length)) {
      unpack<N>(bits[k], row.type, v);
    } else {
      read<N>(row, i, length, v);
    }
  }
};
