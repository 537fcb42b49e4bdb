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

// Groups of few elements: each lane of the vectors has one.
static constexpr int64_t kMaxLanes = 256;

struct SmallGroups {
  int64_t count;
  int64_t lanes; // at least as many, a multiple of kRowMultiple
  int64_t positions;
  int64_t channels; // of a position
  int64_t of_group; // channels of a group
  int64_t step;     // from one of these to the next
  bool adjoin;      // first elements do, of each four groups
  // Of each group: where its first element lies, and its first channel among
  // those of all samples.
  const int64_t* first_element;
  const int64_t* first_channel;
};

// Elements are in float32. The statistics of `count` groups adjoin; a weight or
// bias has a row of `lanes` for each channel of a group, or one row, with a
// stride of 0.
struct SmallGroupsJob {
  SmallGroups groups;
  const float* x;
  float* y;
  float* mean;
  float* rest;
  float* variance;
  const float* weight;
  const float* bias;
  int64_t weight_stride;
  int64_t bias_stride;
  Activation activation;
  float eps;
  float* scratch; // kSmallScratch rows of `lanes` for each element
};

struct SmallGroupsVJPJob {
  SmallGroups groups;
  const float* x;
  const float* cotangent;
  const float* mean;
  const float* rest;
  const float* variance;
  const float* weight;
  const float* bias;
  int64_t weight_stride;
  int64_t bias_stride;
  Activation activation;
  float eps;
  float* input;     // null: not wanted
  float* bias_sums; // null: neither sums are wanted
  float* weight_sums;
  float* scratch; // as above
};

static constexpr int kSmallScratch = 3;

struct GroupKernels {
  void (*statistics)(const GroupStatisticsJob&);
  void (*normalize)(const GroupNormalizeJob&);
  void (*vjp_sums)(const GroupVJPJob&);
  void (*vjp_input)(const GroupVJPJob&);
  void (*norm_small_groups)(const SmallGroupsJob&);
  void (*vjp_of_small_groups)(const SmallGroupsVJPJob&);
};

// The kernels for the instruction set in use (csrc/cpu/isa.cpp).
const GroupKernels& group_kernels();

} // namespace mlx_norms::cpu
