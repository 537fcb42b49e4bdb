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

using enum Operand;

// Padded rows in float32 with the offset added; row i uses weight row i % rows.
struct Weight {
  const float* data;
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
  bool l2;
  bool eps_bounds;
};

struct NormJob {
  int64_t first_row; // in the array, to find the weight's row
  int64_t rows;
  int64_t rows_after; // rows of x and of the residual that are needed next
  int64_t width;
  RowsIn in[kOperands]; // no data: absent, or one of those below
  RowsOut normalized;
  RowsOut sum; // of x and the residuals
  Weight weight;
  Weight bias; // no data: none
  float number = 1.0f;
  bool round_factored;     // to x's dtype
  bool factor_of_sum;      // which is rounded before and after
  float multiplier = 1.0f; // of y
  bool round_result;  // y, before it is modulated: a weight or bias changed it
  bool round_product; // of y and 1 + scale, to the output's dtype
  bool gate_first;    // of x, before it is normalized
  bool round_gated;   // x times the activated gate, to x's dtype
  Activation activation = Activation::None;
  bool center;
  bool clamp;
  bool late;
  Root root;
  // A padded row, or four with a scale, shift, factor, multiplier, gate or
  // second residual.
  float* scratch;
};

struct NormVJPJob {
  int64_t first_row;
  int64_t rows;
  int64_t width;
  RowsIn in[kOperands];  // no data: absent, or one of those below
  RowsOut input;         // no data: not wanted
  RowsOut gate_gradient; // likewise
  Weight weight;
  CompensatedSum weight_gradient; // weight.rows rows, or null
  CompensatedSum bias_gradient;   // as many, or null
  bool center;
  bool clamp;
  bool identity; // the rows are not normalized
  bool gate_first;
  Activation activation = Activation::None;
  Root root;
  float* scratch; // three padded rows, or five with a gate
};

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

// The kernels for the instruction set in use.
const Kernels& kernels();

} // namespace mlx_norms::cpu
