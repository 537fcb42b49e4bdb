// Copyright © 2026 mlx_norms contributors

#pragma once

#include <optional>

#include "csrc/common/backend.h"

namespace mlx_norms {

// How a row is spread over threads (kernels/common/row_threads.h). This depends
// only on the row's length and dtype, never on the number of rows, so norms are
// batch-invariant.
struct Geometry {
  int width;             // elements per vector: N
  int vectors;           // vectors per thread: V
  int simds;             // SIMD-groups per row
  bool looped;           // the row has several chunks
  int lanes = kSimdSize; // of a SIMD-group per row, a power of two

  static constexpr int kSimdSize = 32;
  static constexpr int kMaxSimds = 32;

  // One SIMD-group sums rows without barriers: a threadgroup can have several.
  int loops_per_group() const {
    return simds == 1 ? 8 : 1;
  }
  int rows_per_simd() const {
    return kSimdSize / lanes;
  }
  int rows_per_group() const {
    return loops_per_group() * rows_per_simd();
  }
  int group_size() const {
    return kSimdSize * simds * loops_per_group();
  }
  int row_bytes() const { // of its vectors, as in threadgroup memory
    return 16 * vectors * kSimdSize * simds;
  }
  int chunk() const { // elements
    return width * vectors * lanes * simds;
  }
  // Whether no thread's vector extends past the end of a row of this length.
  bool is_whole(int length) const {
    return length % chunk() == 0;
  }
  // Whether rows of this length are read by elements.
  bool is_scattered(int length) const {
    return length % width != 0;
  }
  // The kernels' full_count.
  int full_count(int length) const {
    int of_all = lanes * simds * (is_scattered(length) ? 1 : width);
    return is_whole(length) ? vectors : looped ? 0 : length / of_all;
  }
};

// The forward kernel holds a row of one array, the backward kernel a row of two
// arrays and sums; for LayerNorm it takes more sums, for two norms it holds two
// rows of both. That of heads sums them without barriers: one SIMD-group has a
// row.
enum class RowKernel {
  Forward,
  Heads,
  Backward,
  CenteredBackward,
  TwoBackward
};

inline bool is_backward(RowKernel kernel) {
  return kernel != RowKernel::Forward && kernel != RowKernel::Heads;
}

Geometry
geometry_for(RowKernel kernel, int length, int item_size, Backend backend);

// Rows that are read in chunks instead of being held.
Geometry in_chunks(const Geometry& held);

// Whether the kernel has an instance with this geometry, and the most threads
// per threadgroup of that (kernels/common/row_instances.h).
bool is_built(RowKernel kernel, const Geometry& geometry, Backend backend);
int max_threads_of(RowKernel kernel, Geometry geometry, Backend backend);

// What an instance has, that all rows of these two geometries can share if each
// keeps its own lanes and SIMD-groups: as many of both as either. None, if
// there is no such instance, or if either is read in chunks.
std::optional<Geometry>
common_geometry(const Geometry& a, const Geometry& b, Backend backend);

// Forces the number of vectors per thread on CUDA, forward or backward; 0: the
// number measured as best. For measurements.
void set_vectors(bool backward, int vectors);

} // namespace mlx_norms
