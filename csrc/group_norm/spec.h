// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/activation.h"
#include "csrc/common/types.h"
#include "mlx/mlx.h"

namespace mlx_norms {

// A norm of x, [samples, positions..., channels], with statistics over all
// positions of a group of channels of a sample: group norm; instance norm, with
// groups of one channel; batch norm, without axes of samples.
struct GroupNormSpec {
  bool weight = false;
  bool bias = false;
  bool running = false; // statistics are given, one of each channel
  bool strided = false; // channel c is in group c % groups, else they adjoin
  int groups = 0;       // 0: as many as channels
  int sample_axes = 1;  // of x, its first ones; others are of positions
  Activation activation = Activation::None;
  float eps = 1e-5f;

  bool operator==(const GroupNormSpec&) const = default;

  bool one_channel_each() const {
    return groups == 0;
  }
  int groups_of(const mx::array& x) const {
    return groups ? groups : x.shape(-1);
  }
  // {x, [weight], [bias], [mean, variance]}
  int n_parameters() const {
    return weight + bias + 2 * running;
  }
  // {normalized, [mean, rest, variance]}: the mean in two parts, which are
  // added up, and the variance, in float32, of shape [samples..., groups].
  int n_outputs() const {
    return running ? 1 : 4;
  }
};

// Parameters have the shape [channels]. Null: absent.
struct GroupNormInputs {
  const mx::array& x;
  const mx::array* weight;
  const mx::array* bias;
  const mx::array* mean;
  const mx::array* variance;

  GroupNormInputs(const GroupNormSpec& spec, const mx::array* first)
      : x(*first++),
        weight(spec.weight ? first++ : nullptr),
        bias(spec.bias ? first++ : nullptr),
        mean(spec.running ? first++ : nullptr),
        variance(spec.running ? first++ : nullptr) {}
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
    return input && !norm.running;
  }
  // Whether a GPU's launch of so many chunks has all sums.
  bool sums_at_once(int chunks, int of_group) const {
    return chunks == 1 && (!takes_means() || of_group == 1);
  }

  bool operator==(const GroupNormVJPSpec&) const = default;
};

} // namespace mlx_norms
