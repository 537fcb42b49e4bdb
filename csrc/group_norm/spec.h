// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/activation.h"
#include "csrc/common/types.h"
#include "mlx/mlx.h"

namespace mlx_norms {

// A norm of x, [samples, positions..., channels], with statistics over all
// positions of a group of channels of a sample: group norm; instance norm, with
// groups of one channel; batch norm, with one sample.
struct GroupNormSpec {
  bool weight = false;
  bool bias = false;
  bool running = false; // statistics are given, one of each channel
  bool batch = false;   // the samples are positions of one
  bool strided = false; // channel c is in group c % groups, else they adjoin
  int groups = 0;       // 0: as many as channels
  Activation activation = Activation::None;
  float eps = 1e-5f;

  bool operator==(const GroupNormSpec&) const = default;

  bool one_channel_each() const {
    return groups == 0;
  }
  int groups_of(const mx::array& x) const {
    return groups ? groups : x.shape(-1);
  }
  int samples_of(const mx::array& x) const {
    return batch ? 1 : x.shape(0);
  }
  // {x, [weight], [bias], [mean, variance]}
  int n_inputs() const {
    return 1 + weight + bias + 2 * running;
  }
  // {normalized, [statistics]}. Statistics are float32, of shape [3, samples,
  // groups]: two parts of the mean, which are added up, and the variance.
  int n_outputs() const {
    return running ? 1 : 2;
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

} // namespace mlx_norms
