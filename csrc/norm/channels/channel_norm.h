// Copyright © 2026 mlx_norms contributors
//
// A norm over an axis that is not the last one, such as the channels of
// [B, C, H, W], and its gradients (csrc/op/node.h says what an op has).

#pragma once

#include "csrc/norm/spec.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// Inputs are x, [weight], [bias].
struct ChannelNorm {
  NormSpec spec;
  int axis; // counted from the end, so that a batch axis may be put before
  mx::Dtype dtype;

  bool operator==(const ChannelNorm&) const = default;
  const char* name() const {
    return spec.center ? "mlx_norms::ChannelLayerNorm"
                       : "mlx_norms::ChannelRMSNorm";
  }
  mx::Shape shape(const Arrays& inputs) const {
    return inputs[0].shape();
  }
  Donors donors(const Arrays& inputs, size_t, mx::Stream) const {
    return {&inputs[0]};
  }
  void check(const Arrays& inputs) const;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s) const;

  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const;
  ChannelNorm sampled(const Arrays& inputs, mx::Stream s) const;
  Arrays sample(const Arrays& inputs, mx::Stream s) const;

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const;
  std::optional<Call<ChannelNorm>> batched(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const;
};

// Those gradients that are wanted, of kX, kWeight and kBias.
struct ChannelNormVJP {
  NormSpec norm;
  Operands wanted;
  int axis;
  Dtypes dtypes;

  bool operator==(const ChannelNormVJP&) const = default;
  const char* name() const {
    return "mlx_norms::ChannelNormVJP";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const {
    const auto& x = inputs[0];
    return wanted.at(i) == kX ? x.shape() : mx::Shape{x.shape(axis)};
  }
  Donors donors(const Arrays& inputs, size_t i, mx::Stream) const {
    return wanted.at(i) == kX ? Donors{&inputs.back(), &inputs.front()}
                              : Donors{};
  }
  void check(const Arrays& inputs) const;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s) const;

  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const;
  ChannelNormVJP sampled(const Arrays& inputs, mx::Stream s) const;
  Arrays sample(const Arrays& inputs, mx::Stream s) const;

  std::optional<Call<ChannelNormVJP>> batched(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const;
};

} // namespace mlx_norms
