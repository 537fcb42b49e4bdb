// Copyright (c) 2026 mlx_norms contributors
//
// The end of a persistent loop: its sums over rows, which are gradients of
// parameters, are added to those of its cluster and stored.

#pragma once

#include "kernels/common/cluster.h"
#include "kernels/common/row_threads.h"

// The flags of partial sums.
constant constexpr int kPartialFlags = kFloat32 | kVectors;

// A parameter's sums, and where they are stored if they are wanted.
template <int N, int V>
struct LoopSums {
  float of[V * N];
  bool wanted;
  RowOut out;

  void begin(bool is_wanted) thread {
    wanted = is_wanted;
    clear<V * N>(of);
  }
};

// Which row of partial sums is that of this loop, or of its cluster.
inline uint partial_row(uint index) {
  return index / uint(cluster);
}

// Stores two parameters' sums, each of this thread's V vectors.
template <int N, int V>
inline void store_sums(
    thread LoopSums<N, V>& first,
    thread LoopSums<N, V>& second,
    uint lane,
    thread const RowThreads& threads,
    int length) {
  // The rows of a SIMD-group add up to one.
  for (int e = 0; e < V * N; ++e) {
    first.of[e] = first.wanted ? rows_sum(first.of[e]) : 0.0f;
    second.of[e] = second.wanted ? rows_sum(second.of[e]) : 0.0f;
  }
  int begin = first.wanted ? V : 0; // index of the second's vectors in the sums
#ifdef __CUDACC__
  if (cluster > 1) {
    await_copies<0>(); // a loop without rows has not waited yet
    for (int k = 0; k < V; ++k) {
      if (first.wanted) {
        cluster_store<N>(k, first.of + k * N);
      }
      if (second.wanted) {
        cluster_store<N>(begin + k, second.of + k * N);
      }
    }
    cluster_barrier();
    for (int k = 0; k < V; ++k) {
      if (first.wanted && has_sum(k)) {
        cluster_reduce<N>(k, first.of + k * N);
      }
      if (second.wanted && has_sum(begin + k)) {
        cluster_reduce<N>(begin + k, second.of + k * N);
      }
    }
    cluster_barrier(); // no threadgroup may exit while others read
  }
#endif
  bool stores = row_in_simd(lane) == 0;
  for (int k = 0; k < V; ++k) {
    Span<N> of = span_of<N>(threads, 0, k, length);
    if (first.wanted && stores && has_sum(k)) {
      write<N>(first.out, of, first.of + k * N);
    }
    if (second.wanted && stores && has_sum(begin + k)) {
      write<N>(second.out, of, second.of + k * N);
    }
  }
}
