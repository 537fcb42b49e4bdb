// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/backend.h"

namespace mlx_norms {

// How a row is spread over threads (kernels/common/row_threads.h). This depends
// only on the row's length and dtype, never on the number of rows, so norms are
// batch-invariant.
struct Geometry {
  int width;   // elements per vector: N
  int vectors; // vectors per thread: V
  int simds;   // SIMD-groups per row
  bool looped; // the row has several chunks

  static constexpr int kSimdSize = 32;
  static constexpr int kMaxSimds = 32;

  // One SIMD-group sums a row without barriers: a threadgroup can have several.
  int rows_per_group() const {
    return simds == 1 ? 8 : 1;
  }
  int group_size() const {
    return kSimdSize * simds * rows_per_group();
  }
  // Whether no thread's vector extends past the end of a row of this length.
  bool is_whole(int length) const {
    return length % (width * vectors * kSimdSize * simds) == 0;
  }
};

// For the forward kernel, which holds a row of one array, or the backward
// kernel, which holds a row of two arrays and sums.
Geometry
geometry_for(bool backward, int length, int item_size, Backend backend);

// Forces the number of vectors per thread on CUDA, forward or backward; 0: the
// number measured as best. For measurements.
void set_vectors(bool backward, int vectors);

} // namespace mlx_norms
