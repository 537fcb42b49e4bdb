// Copyright © 2026 mlx_norms contributors
//
// Group, instance and batch norm, and their gradients.

#pragma once

#include "csrc/group_norm/geometry.h"
#include "csrc/group_norm/spec.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// {normalized, [mean, rest, variance]}
struct GroupNorm : OpOf<GroupNorm> {
  GroupNormSpec spec;

  GroupNorm(GroupNormSpec spec, mx::Dtype dtype)
      : OpOf(Dtypes{dtype}),
        spec(spec) {
    dtypes.insert(dtypes.end(), spec.n_outputs() - 1, mx::float32);
  }

  bool operator==(const GroupNorm&) const = default;
  const char* name() const override {
    return "mlx_norms::GroupNorm";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  Donors donors(const Arrays& inputs, size_t i, mx::Stream) const override {
    return {i == 0 ? &inputs[0] : nullptr};
  }
  void check(const Arrays& inputs) const override;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;
  void eval_cpu(const Arrays& inputs, Arrays& outputs, mx::Stream s)
      const override;

  // The result alone: GPUs add up the statistics in other orders.
  size_t compared() const override {
    return 1;
  }
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

// {[gradient of x], [bias sums, weight sums]}
struct GroupNormVJP : OpOf<GroupNormVJP> {
  GroupNormVJPSpec spec;

  GroupNormVJP(GroupNormVJPSpec spec, mx::Dtype dtype) : spec(spec) {
    dtypes.insert(dtypes.end(), spec.input, dtype);
    dtypes.insert(dtypes.end(), 2 * spec.sums, spec.sums_dtype);
  }

  bool operator==(const GroupNormVJP&) const = default;
  const char* name() const override {
    return "mlx_norms::GroupNormVJP";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  Donors donors(const Arrays& inputs, size_t i, mx::Stream) const override {
    return spec.input && i == 0 ? Donors{&inputs.back(), &inputs[0]} : Donors{};
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

// How a norm of x takes a single launch; none if it takes several.
std::optional<HeldGeometry>
held_geometry(const GroupNormSpec& spec, const array& x, mx::Stream stream);

} // namespace mlx_norms
