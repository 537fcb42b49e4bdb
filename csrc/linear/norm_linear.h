// Copyright © 2026 mlx_norms contributors
//
// A norm and projections of its output in one launch, and a quantized product
// alone.

#pragma once

#include "csrc/linear/spec.h"
#include "csrc/op/node.h"

namespace mlx_norms {

// Norms of few rows and their products. Inputs: those of the norm (see
// NormSpec), then those of each projection. Outputs: one per projection, or the
// gated one; [sum].
struct NormLinear : OpOf<NormLinear> {
  NormLinearSpec spec;

  NormLinear(NormLinearSpec spec, const Arrays& inputs);

  bool operator==(const NormLinear&) const = default;
  const char* name() const override {
    return spec.normed ? "mlx_norms::NormLinear" : "mlx_norms::QuantizedMatmul";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  void check(const Arrays& inputs) const override;
  Arrays fallback(const Arrays& inputs, mx::Stream s) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;

  void append_key(
      const Arrays& inputs,
      mx::Stream s,
      std::vector<int64_t>& numbers) const override;
  OpPtr sampled(const Arrays& inputs, mx::Stream s) const override;
  Arrays sample(const Arrays& inputs, mx::Stream s) const override;
  Arrays reference(const Arrays& sample, mx::Stream s) const override;

  // Whether one launch computes it: on a GPU's stream, for few rows, with
  // dtypes and sizes that the kernel supports.
  bool suits(const Arrays& inputs, mx::Stream s) const override;

  Arrays mapped(
      const Arrays& inputs,
      const std::vector<int>& axes,
      mx::Stream s) const override;
};

// The outputs by one launch, or by the norm and MLX's matmuls. The inputs have
// been checked.
Arrays make_norm_linear(NormLinearSpec spec, Arrays inputs, mx::Stream stream);

} // namespace mlx_norms
