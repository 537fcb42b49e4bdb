// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// A norm of x, [samples, positions..., channels], with statistics over all
// positions of a group of channels of a sample: group norm; instance norm, with
// groups of one channel; batch norm, without axes of samples. It subtracts the
// mean and rounds once. Parameters have the shape [channels], and so have
// statistics that are given, as operands.
struct GroupNormSpec : NormSpec {
  bool strided = false; // channel c is in group c % groups, else they adjoin
  int groups = 0;       // 0: as many as channels
  int sample_axes = 1;  // of x, its first ones; others are of positions

  bool operator==(const GroupNormSpec&) const = default;

  bool running() const {
    return has(kMean);
  }
  bool one_channel_each() const {
    return groups == 0;
  }
  int groups_of(const mx::array& x) const {
    return groups ? groups : x.shape(-1);
  }
  // {normalized, [mean, rest, variance]}: the mean in two parts, which are
  // added up, and the variance, in float32, of shape [samples..., groups].
  int n_outputs() const {
    return running() ? 1 : 4;
  }
};

// The gradients of a norm: {[of x], [bias sums, weight sums]}. Sums have the
// shape [samples..., channels], over a sample's positions: of the cotangents of
// what the activation takes, and of them times the normalized values. Inputs
// are the norm's, then mean, rest and variance unless they are given, and the
// cotangent.
struct GroupNormVJPSpec {
  GroupNormSpec norm;
  bool input = false;
  bool sums = false;
  mx::Dtype sums_dtype = mx::float32; // on the CPU always

  // Whether x's gradient depends on the means of g w and g w n.
  bool takes_means() const {
    return input && !norm.running();
  }
  // Whether a GPU's launch of so many chunks has all sums.
  bool sums_at_once(int chunks, int of_group) const {
    return chunks == 1 && (!takes_means() || of_group == 1);
  }

  bool operator==(const GroupNormVJPSpec&) const = default;
};

} // namespace mlx_norms
