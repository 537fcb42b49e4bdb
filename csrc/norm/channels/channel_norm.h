// Copyright © 2026 mlx_norms contributors
//
// A norm over an axis that is not the last one, such as the channels of
// [B, C, H, W], and its gradients.

#pragma once

#include "csrc/norm/spec.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// Inputs are x, [weight], [bias].
struct ChannelNorm : OpOf<ChannelNorm> {
  NormSpec spec;
  int axis; // counted from the end, so that a batch axis may be put before

  ChannelNorm(const NormSpec& spec, int axis, mx::Dtype dtype)
      : OpOf(Dtypes{dtype}),
        spec(spec),
        axis(axis) {}

  bool operator==(const ChannelNorm&) const = default;
  const char* name() const override {
    return spec.center ? "mlx_norms::ChannelLayerNorm"
                       : "mlx_norms::ChannelRMSNorm";
  }
  Donors donors(const Arrays& inputs, size_t, mx::Stream) const override {
    return {&inputs[0]};
  }
  void check(const Arrays& inputs) const override;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s)
      const override;

  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const override;
  OpPtr sampled(const Arrays& inputs, mx::Stream s) const override;
  Arrays sample(const Arrays& inputs, mx::Stream s) const override;

  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const override;
  Call<OpPtr> batched(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override;
};

// Those gradients that are wanted, of kX, kWeight and kBias.
struct ChannelNormVJP : OpOf<ChannelNormVJP> {
  NormSpec norm;
  Operands wanted;
  int axis;

  ChannelNormVJP(const NormSpec& norm, Operands wanted, int axis, Dtypes dtypes)
      : OpOf(std::move(dtypes)),
        norm(norm),
        wanted(wanted),
        axis(axis) {}

  bool operator==(const ChannelNormVJP&) const = default;
  const char* name() const override {
    return "mlx_norms::ChannelNormVJP";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override {
    const auto& x = inputs[0];
    return wanted.at(i) == kX ? x.shape() : mx::Shape{x.shape(axis)};
  }
  Donors donors(const Arrays& inputs, size_t i, mx::Stream) const override {
    return wanted.at(i) == kX ? Donors{&inputs.back(), &inputs.front()}
                              : Donors{};
  }
  void check(const Arrays& inputs) const override;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s)
      const override;

  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const override;
  OpPtr sampled(const Arrays& inputs, mx::Stream s) const override;
  Arrays sample(const Arrays& inputs, mx::Stream s) const override;

  Call<OpPtr> batched(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override;
};

} // namespace mlx_norms
