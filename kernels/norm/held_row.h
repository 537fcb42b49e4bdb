// Copyright (c) 2026 mlx_norms contributors
//
// Holds a row of one chunk in registers between its uses. On CUDA 16-bit values
// stay packed: registers limit how many rows a multiprocessor works on. A row
// of several chunks is read again.

#pragma once

#include "kernels/common/row_threads.h"

template <int N, int V>
struct HeldRow {
  float v[V * N];
#ifdef __CUDACC__
  uint4 bits[V];
#endif

  // Reads vector k of `row`, which is `of`, and holds it.
  void read_vector(RowIn row, int k, Span<N> of, thread float* to) thread {
#ifdef __CUDACC__
    if (N == 8 && can_fetch<N>(row, of)) {
      put_packed(k, row.type, fetch<N>(row, of), to);
      return;
    }
#endif
    read_own<N>(row, of, to);
    put_vector(k, row.type, to);
  }

#ifdef __CUDACC__
  void put_packed(int k, int type, uint4 from, thread float* to) thread {
    bits[k] = from;
    unpack<N>(from, type, to);
  }
#endif

  void put_vector(int k, int type, thread const float* from) thread {
#ifdef __CUDACC__
    if (N == 8 && type != kFloat32) {
      bits[k] = pack(from, type);
      return;
    }
#endif
    for (int j = 0; j < N; ++j) {
      v[k * N + j] = from[j];
    }
  }

  // Vector k again, as it was read or put.
  void get_vector(RowIn row, int k, Span<N> of, thread float* to) thread {
    if (looped) {
      read_own<N>(row, of, to);
      return;
    }
#ifdef __CUDACC__
    if (N == 8 && row.type != kFloat32) {
      keep_packed(bits[k]);
      unpack<N>(bits[k], row.type, to);
      return;
    }
#endif
    for (int j = 0; j < N; ++j) {
      to[j] = v[k * N + j];
    }
  }
};
