// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/backend.h"

namespace mlx_norms {

// How a row is spread over threads (kernels/common/row_threads.h). It follows
// from the row's length and dtype alone, never from the number of rows, so that
// norms are batch-invariant.
struct Geometry {
  int width;   // elements per vector: N
  int vectors; // vectors per thread: V
  int simds;   // SIMD-groups per row
  bool looped; // the row takes several chunks

  static constexpr int kSimdSize = 32;
  static constexpr int kMaxSimds = 32;

  // A row's sums need no barrier: a threadgroup takes several rows.
  int rows_per_group() const {
    return simds == 1 ? 8 : 1;
  }
  int group_size() const {
    return kSimdSize * simds * rows_per_group();
  }
  // No thread's vector passes the end of a row of this length.
  bool is_whole(int length) const {
    return length % (width * vectors * kSimdSize * simds) == 0;
  }
};

// Of the forward kernel, which holds one array's row, or of the backward one,
// which holds a row of two arrays and sums besides.
Geometry
geometry_for(bool backward, int length, int item_size, Backend backend);

// Has every row take so many vectors per thread on CUDA, forward or backward;
// 0: as many as were found best. For measurements.
void set_vectors(bool backward, int vectors);

} // namespace mlx_norms
