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
  SumNumbers numbers = {};
  bool has_numbers = false;
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

// Each lane of the jobs below has statistics of its own: a norm over another
// axis than the last one, a channel or a group. Rows are of adjoining lanes,
// and what is of each lane is a padded row in float32.

// Adds rows to the statistics of each lane: the mean in two parts, which are
// added up, and the sum of the squared deviations from it.
struct LaneStatisticsJob {
  int64_t lanes;
  int64_t rows;
  int64_t before; // rows that have been added; with none the statistics are new
  RowsIn x;
  float* mean;
  float* rest;
  CompensatedSum squares;  // without an error: not compensated
  bool uncentered = false; // of rms norms: the squares alone
  // With g, a cotangent, by row, the sums of weight g and weight g (x - mean),
  // too.
  RowsIn cotangent = {};         // no data: neither
  const float* weight = nullptr; // of each row
  CompensatedSum bias_sums = {};
  CompensatedSum weight_sums = {};
};

// Sums of squares of so many elements become the variance, and
// rstd = 1 / sqrt(variance + eps), which is zero past the last lane, and
// shift = -rest rstd.
struct LaneFactorsJob {
  int64_t lanes;
  float elements;
  Root root;
  const float* rest;
  float* variance;
  float* rstd;
  float* shift;
  bool uncentered = false;
};

// What makes x of each lane n = (x - mean) rstd + shift.
struct LaneScale {
  const float* mean;
  const float* rstd;
  const float* shift;
};

// y = act(n weight + bias). In this order: rstd times a large weight may
// overflow where n weight does not.
struct LaneNormJob {
  int64_t lanes;
  int64_t rows;
  RowsIn x;
  RowsOut y; // unless by row, of x's dtype or float32
  int64_t y_stride;
  LaneScale by;
  const float* weight; // of each lane or, by row, of each row; so is the bias
  const float* bias;
  Activation activation;
  bool by_row = false;
  bool early = false;      // by row, each step is rounded
  bool uncentered = false; // by row: n = x rstd
};

static constexpr int64_t kMaxLanes = 1024;
static constexpr int64_t kSumLanes = 256;

// How gradients follow from n and from g, the cotangent times the slope of the
// activation at n weight + bias.
struct LaneVJPJob {
  int64_t lanes;
  int64_t rows;
  int64_t before; // rows that are in the sums; with none the sums are new
  RowsIn x;
  RowsIn cotangent; // unless by row, of x's dtype
  LaneScale by;
  const float* weight;
  const float* bias; // read for an activation, of which there is none by row
  Activation activation;
  // The sums of g and of g n, by row of weight g and weight g n; without errors
  // they are not compensated.
  CompensatedSum bias_sums;
  CompensatedSum weight_sums;
  // x's gradient, of its dtype: (g w - mean_wg - n mean_wgn) rstd
  RowsOut input; // by row, no data: not wanted
  int64_t input_stride;
  const float* mean_wgn; // null: g weight rstd alone
  const float* mean_wg;
  bool by_row = false;
  bool uncentered = false; // by row: n = x rstd, and there is no mean_wg
  // Sums to which those of each row are added, taken over each kSumLanes of at
  // most kMaxLanes; null: not wanted.
  CompensatedSum weight_gradients[kMaxLanes / kSumLanes] = {};
  CompensatedSum bias_gradients[kMaxLanes / kSumLanes] = {};
};

struct Kernels {
  void (*norm)(const NormJob&);
  void (*norm_vjp)(const NormVJPJob&);
  void (*lane_statistics)(const LaneStatisticsJob&);
  void (*lane_factors)(const LaneFactorsJob&);
  void (*lane_norm)(const LaneNormJob&);
  void (*lane_sums)(const LaneVJPJob&);
  void (*lane_gradients)(const LaneVJPJob&);
  // Adds `from`, the sums over a block of rows, to `to`, those over all rows.
  void (*add_sums)(CompensatedSum to, CompensatedSum from, int64_t size);
  void (*load)(const RowsIn& rows, int64_t row, int64_t width, float* to);
  void (*store)(const float* from, int64_t width, const RowsOut& to);
};

// The kernels for the instruction set in use (csrc/cpu/isa.cpp).
const Kernels& kernels();

} // namespace mlx_norms::cpu
