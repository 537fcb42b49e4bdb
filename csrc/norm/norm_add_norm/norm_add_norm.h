// Copyright © 2026 mlx_norms contributors
//
// The norm of residual + norm(x), and that sum, as in models with a norm after
// and before each layer: a Norm whose x is normalized first. Its gradients are
// one launch: that of the sum is the cotangent of x's norm, and is read by
// nobody else. With a factor of x's norm they take several.

#pragma once

#include "csrc/norm/norm.h"

namespace mlx_norms {

// {normalized, sum} of one norm after another.
Arrays in_two_norms(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream s);

// On the CPU.
void eval_norm_add_norm(
    const NormSpec& spec,
    const NormInputs& in,
    Arrays& outputs,
    mx::Stream s);

// The gradients of the primals that are wanted. The cotangents are in the
// outputs' dtypes; that of the normalized output is null if it takes no part.
Gradients norm_add_norm_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& sum,
    const array* cotangent,
    const array& sum_cotangent,
    Operands wanted,
    mx::Stream s);

// {x, sum, [post_weight], [weight]}
struct NormAddNormVJP : OpOf<NormAddNormVJP> {
  // x, sum as the residual, [post_weight], [weight], cotangent, sum's cotangent
  NormSpec norms;
  Operands wanted; // of the weights

  NormAddNormVJP(const NormSpec& norms, Operands wanted, Dtypes dtypes)
      : OpOf(std::move(dtypes)),
        norms(norms),
        wanted(wanted) {}

  bool operator==(const NormAddNormVJP&) const = default;
  const char* name() const override {
    return "mlx_norms::NormAddNormVJP";
  }
  mx::Shape shape(const Arrays& inputs, size_t i) const override;
  Donors donors(const Arrays& inputs, size_t i, mx::Stream s) const override;
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

  // Whether a GPU's threads hold what the kernel needs of such rows.
  bool suits(const Arrays& inputs, mx::Stream s) const override;
  // The gradients of one norm after another.
  Arrays steps(const Arrays& inputs, mx::Stream s) const override;

  NormInputs in(const Arrays& inputs) const {
    return {norms.operands, inputs.data()};
  }
  // The gradients of the sum's norm and, given the sum's, of x's, as ops.
  Call<NormVJP> of_sum(const Arrays& inputs) const;
  Call<NormVJP> of_x(const Arrays& inputs, const array& sum_gradient) const;
};

} // namespace mlx_norms
