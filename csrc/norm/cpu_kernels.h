// Copyright © 2026 mlx_norms contributors
//
// The interface of every instruction set's kernels. Plain data only: kernels
// are compiled for instructions that this machine may lack, so they must not
// share inline code with the rest of the extension.

#pragma once

#include "csrc/common/activation.h"
#include "csrc/cpu/rows.h"
#include "csrc/norm/operand.h"

namespace mlx_norms::cpu {

using mlx_norms::Operand;
using enum Operand;

// Padded rows in float32 with the offset added; row i uses weight row i % rows.
struct Weight {
  const float* data = nullptr;
  int64_t rows = 1;
};

// Padded sums over rows with their rounding errors (Kahan), and plain sums over
// the latest few rows. They start as zeros.
struct CompensatedSum {
  float* sum = nullptr;
  float* error = nullptr;
  float* partial = nullptr;
};

// How a row's factor follows from its squares: see NormSpec.
struct Root {
  float eps;
  bool l2 = false;
  bool eps_bounds = false;
};

// What a spec says, besides its operands.
struct NormOptions {
  Root root = {};
  Activation activation = Activation::None;
  bool gate_first = false; // of x, before it is normalized
  bool center = false;
  bool late = false;
  bool clamp = false;
  bool identity = false; // the rows of a gradient are not normalized
  float factor = 1.0f;   // a number, if it is no operand
  bool factor_of_sum = false;
  float multiplier = 1.0f;
};

struct NormJob : NormOptions {
  int64_t first_row = 0; // in the array, to find the weight's row
  int64_t rows = 0;
  int64_t rows_after = 0; // rows of x and of the residual that are needed next
  int64_t width = 0;
  RowsIn in[kOperands] = {}; // no data: absent, or one of those below
  RowsOut normalized = {};
  RowsOut sum = {}; // of x and the residuals
  Weight weight = {};
  Weight bias = {};         // no data: none
  float* scratch = nullptr; // scratch_rows() padded rows
};

// As many rows as are computed together in float32, which stay in the L1 cache.
static constexpr int64_t scratch_rows(int64_t width) {
  constexpr int64_t kElements = 1024;
  return width < kElements ? kElements / padded(width) : 1;
}

struct NormVJPJob : NormOptions {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t width = 0;
  RowsIn in[kOperands] = {};   // no data: absent, or one of those below
  RowsOut out[kOperands] = {}; // of kX and kGate; no data: not wanted
  Weight weight = {};
  CompensatedSum weight_gradient = {}; // weight.rows rows, or null
  CompensatedSum bias_gradient = {};   // as many, or null
  float* scratch = nullptr;            // kVJPScratch * scratch_rows() of them
};

// x, two cotangents, a gate and its gradient.
static constexpr int64_t kVJPScratch = 5;

// Adjoining columns of one sample: channels that are `step` elements apart, of
// x, and as dense as they can be of an output.
struct ChannelsIn {
  const void* data = nullptr;
  Float type = Float::f32;
  int64_t step = 0;
};

static constexpr int64_t kMaxColumns = 1024;
// Sums over columns are taken over so many.
static constexpr int64_t kSumColumns = 256;

struct ChannelNormJob {
  int64_t channels;
  int64_t columns; // at most kMaxColumns
  ChannelsIn x;
  RowsOut normalized;
  int64_t normalized_step;
  const float* weight; // null: none
  const float* bias;   // null: none
  bool center;
  bool late;
  Activation activation; // of the result
  Root root;
};

struct ChannelNormVJPJob {
  int64_t channels;
  int64_t columns;
  ChannelsIn x;
  ChannelsIn cotangent;
  RowsOut input; // no data: not wanted
  int64_t input_step;
  const float* weight; // null: none
  // To which those over each kSumColumns columns are added; null: not wanted.
  CompensatedSum weight_gradients[kMaxColumns / kSumColumns];
  CompensatedSum bias_gradients[kMaxColumns / kSumColumns];
  bool center;
  Root root;
};

struct Kernels {
  void (*norm)(const NormJob&);
  void (*norm_vjp)(const NormVJPJob&);
  void (*channel_norm)(const ChannelNormJob&);
  void (*channel_norm_vjp)(const ChannelNormVJPJob&);
  // Adds `from`, the sums over a block of rows, to `to`, those over all rows.
  void (*add_sums)(CompensatedSum to, CompensatedSum from, int64_t size);
  void (*load)(const RowsIn& rows, int64_t row, int64_t width, float* to);
  void (*store)(const float* from, int64_t width, const RowsOut& to);
};

// The kernels for the instruction set in use (csrc/cpu/isa.cpp).
const Kernels& kernels();

} // namespace mlx_norms::cpu
