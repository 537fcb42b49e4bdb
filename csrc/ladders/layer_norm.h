// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

// layer_norm by one of layer_norm_rungs(), but not ours.
struct LayerNormRung : OpOf<LayerNormRung> {
  const Rung* rung;
  NormSpec spec;

  LayerNormRung(const Rung* rung, const NormSpec& spec, mx::Dtype dtype)
      : OpOf(Dtypes{dtype}),
        rung(rung),
        spec(spec) {}

  bool operator==(const LayerNormRung&) const = default;
  const char* name() const override {
    return "mlx_norms::LayerNormRung";
  }
  bool has_sample() const override {
    return false;
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  Donors donors(const Arrays& inputs, size_t, mx::Stream) const override {
    return {&inputs[0]};
  }
  void check(const Arrays& inputs) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;

  // Those of layer_norm.
  Arrays jvp(
      const Arrays& primals,
      const Arrays& tangents,
      const std::vector<int>& argnums,
      mx::Stream s) const override;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const override;
  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override;
};

struct LayerNormByRung {
  const array* x = nullptr;
  const array* weight = nullptr;
  const array* bias = nullptr;
  float eps = 1e-5f;
  std::string rung;
  mx::StreamOrDevice stream;
};

// Throws std::invalid_argument if the rung does not accept the arguments.
array layer_norm_by_rung(const LayerNormByRung& arguments);

} // namespace mlx_norms
