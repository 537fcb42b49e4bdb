// Copyright © 2026 mlx_norms contributors
//
// The interface of every instruction set's kernels for group norms: plain data
// only, as in csrc/norm/cpu_kernels.h. A row is a position's channels, which
// adjoin; what is of each channel is a padded row in float32.

#pragma once

#include "csrc/common/activation.h"
#include "csrc/cpu/rows.h"

namespace mlx_norms::cpu {

// Adds rows to the statistics of each channel: the mean in two parts, which are
// added up, and the sum of the squared deviations from it.
struct GroupStatisticsJob {
  int64_t channels;
  int64_t rows;
  int64_t before; // rows that have been added; with none the statistics are new
  RowsIn x;
  float* mean;
  float* rest;
  float* squares;
};

// y = act(n weight + bias), n = (x - mean) rstd + shift. In this order: rstd
// times a large weight may overflow where n weight does not.
struct GroupNormalizeJob {
  int64_t channels;
  int64_t rows;
  RowsIn x;
  RowsOut y; // of x's dtype or float32
  int64_t y_stride;
  const float* mean;
  const float* rstd;
  const float* shift;
  const float* weight;
  const float* bias;
  Activation activation;
};

// How gradients follow from n = (x - mean) rstd + shift and from g, the
// cotangent times the slope of the activation at n weight + bias.
struct GroupVJPJob {
  int64_t channels;
  int64_t rows;
  int64_t before; // rows that are in the sums; with none the sums are new
  RowsIn x;
  RowsIn cotangent; // of x's dtype
  const float* mean;
  const float* rstd;
  const float* shift;
  const float* weight;
  const float* bias; // read for an activation
  Activation activation;
  // The sums of g and of g n.
  float* bias_sums;
  float* weight_sums;
  // x's gradient, of its dtype: (g w - mean_wg - n mean_wgn) rstd
  RowsOut input;
  int64_t input_stride;
  const float* mean_wgn; // null: g weight rstd alone
  const float* mean_wg;
};

// Of groups in lanes, of so many elements each: sums of squares become the
// variance, rstd = 1 / sqrt(variance + eps), shift = -rest rstd.
struct LaneFactorsJob {
  int64_t lanes; // a multiple of kRowMultiple
  float elements;
  float eps;
  const float* rest;
  float* variance;
  float* rstd;
  float* shift;
};

struct GroupKernels {
  void (*statistics)(const GroupStatisticsJob&);
  void (*normalize)(const GroupNormalizeJob&);
  void (*vjp_sums)(const GroupVJPJob&);
  void (*vjp_input)(const GroupVJPJob&);
  void (*lane_factors)(const LaneFactorsJob&);
};

// The kernels for the instruction set in use (csrc/cpu/isa.cpp).
const GroupKernels& group_kernels();

} // namespace mlx_norms::cpu
