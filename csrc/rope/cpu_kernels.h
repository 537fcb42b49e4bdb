// Copyright © 2026 mlx_norms contributors
//
// The interface of every instruction set's kernels for rotary embeddings: plain
// data only, as in csrc/norm/cpu_kernels.h. Rows in float32 are padded.

#pragma once

#include "csrc/cpu/rows.h"

namespace mlx_norms::cpu {

// The cosine of each of a token's `dims` elements, and the sine with the sign
// that it has there: y = x * cosine + partner * sine.
struct AnglesJob {
  float position;
  const float* inverse_frequencies; // dims / 2
  int64_t dims;
  bool traditional;
  Float type; // that they are rounded to
  float* cosines;
  float* sines;
};

// A head of one token.
struct RopeRow {
  RowsIn x;
  RowsOut y;
  const float* weight; // with its offset; null: none
  float factor = 1.0f; // of the normalized row
  bool rotated;
};

struct RopeJob {
  int64_t width;
  int64_t dims; // of a row, which are rotated
  bool traditional;
  bool normalized;
  bool rope_first;
  bool late;
  float eps;
  const float* cosines;
  const float* sines;
  float* scratch; // two rows
};

struct RopeKernels {
  // base^(-i / n) for i < n, as MLX's ops compute it.
  void (*inverse_frequencies)(float base, int64_t n, float* to);
  void (*angles)(const AnglesJob&);
  void (*row)(const RopeJob&, const RopeRow&);
};

// The kernels for the instruction set in use (csrc/cpu/isa.cpp).
const RopeKernels& rope_kernels();

} // namespace mlx_norms::cpu
