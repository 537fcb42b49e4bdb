// Copyright (c) 2026 mlx_norms contributors
//
// A projection, and the weights that are read of it.

#pragma once

#include "kernels/common/row_threads.h"
#include "kernels/linear/weights.h"

struct Projected {
  device const uchar* weights;
  device const uchar* scales;
  device const uchar* zeros; // MLX's biases, one per group
  device const uchar* bias;
  int size;
  bool biased;
};

// Field by field, as rows are (kernels/common/rows.h).
inline void assign(thread Projected& to, Projected from) {
  to.weights = from.weights;
  to.scales = from.scales;
  to.zeros = from.zeros;
  to.bias = from.bias;
  to.size = from.size;
  to.biased = from.biased;
}

// Vectors of N weights of a chunk, V of each output. Packed rows are found by
// index, as all are of one length.
template <int N, int R, int V>
inline void fetch_weights(
    thread const Projected& of,
    thread const Projected& other,
    thread const uint* rows,
    thread const RowThreads& threads,
    int chunk,
    int length,
    int type,
    thread uint4* bits,
    thread Affine* affine) {
  int group_size = linear_quantized ? linear_group_size : 1;
  uint row_vectors = uint(length) / 16u;
  uint row_groups = uint(length) / uint(group_size);
  for (int k = 0; k < V; ++k) {
    int i = element<N>(threads, chunk, k);
    for (int o = 0; o < R; ++o) {
      thread const Projected& from = o < R / 2 ? of : other;
      uint row = rows[o];
      if (N < 16) {
        bits[k * R + o] = fetch_dense<N>(from.weights, row, i, length);
      } else if (in_row(i, N, length)) {
        bits[k * R + o] =
            fetch_packed(from.weights, row * row_vectors + uint(i) / 16u);
        affine[k * R + o] = load_affine(
            from.scales,
            from.zeros,
            type,
            row * row_groups + uint(i) / uint(group_size));
      } else {
        bits[k * R + o] = uint4(0, 0, 0, 0);
        affine[k * R + o] = Affine{0.0f, 0.0f};
      }
    }
  }
}
