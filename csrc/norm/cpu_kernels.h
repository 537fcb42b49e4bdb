// Copyright © 2026 mlx_norms contributors
//
// What the kernels of every instruction set have. Plain data only: the kernels
// are compiled for instructions that this machine may lack, so no inline code
// of theirs may be shared with the rest of the extension.

#pragma once

#include "csrc/cpu/rows.h"

namespace mlx_norms::cpu {

// Padded rows in float32 with the offset added; row i takes weight row i %
// rows.
struct Weight {
  const float* data;
  int64_t rows = 1;
};

// Padded sums over rows, kept with their rounding errors (Kahan), and the plain
// sums of the latest few rows. They begin as zeros.
struct CompensatedSum {
  float* sum = nullptr;
  float* error = nullptr;
  float* partial = nullptr;
};

struct NormJob {
  int64_t first_row; // of the array, to find the weight's row
  int64_t rows;
  int64_t width;
  RowsIn x;
  RowsIn residual; // no data: none
  RowsOut normalized;
  RowsOut sum; // of x and residual
  Weight weight;
  const float* bias; // a padded row, or null
  bool center;
  bool clamp;
  bool late;
  float eps;
  float* scratch; // a padded row
};

struct NormVJPJob {
  int64_t first_row;
  int64_t rows;
  int64_t width;
  RowsIn s;
  RowsIn cotangent;
  RowsIn sum_cotangent; // no data: none
  RowsOut input;        // no data: not wanted
  Weight weight;
  CompensatedSum weight_gradient; // weight.rows rows, or null
  CompensatedSum bias_gradient;   // one row, or null
  bool center;
  bool clamp;
  float eps;
  float* scratch; // three padded rows
};

struct Kernels {
  void (*norm)(const NormJob&);
  void (*norm_vjp)(const NormVJPJob&);
  // Adds `from` to `to`: the sums over a block of rows to those over all.
  void (*add_sums)(CompensatedSum to, CompensatedSum from, int64_t size);
  void (*load)(const RowsIn& rows, int64_t row, int64_t width, float* to);
  void (*store)(const float* from, int64_t width, const RowsOut& to);
};

// Those compiled for the instruction set in use.
const Kernels& kernels();

} // namespace mlx_norms::cpu
