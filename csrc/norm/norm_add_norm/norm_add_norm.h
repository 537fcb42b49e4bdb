// Copyright © 2026 mlx_norms contributors
//
// norm_add_norm: the norm of residual + norm(x), and that sum, as in models
// with a norm after and before each layer; and its gradients in one launch:
// that of the sum is the cotangent of x's norm, and is read by nobody else.
// With a factor of x's norm they take several.

#pragma once

#include <optional>

#include "csrc/norm/norm.h"

namespace mlx_norms {

// Both are RMSNorms, and have these options in common.
struct NormAddNormSpec {
  bool post_weight = false; // of x's norm
  bool weight = false;      // of the sum's
  bool factor = false;      // of x's norm
  Number number = 1.0f;     // in place of a factor, in x's dtype
  bool clamp = false;       // a float16 sum saturates instead of reaching inf
  Rounding rounding = Rounding::Early;
  Number weight_offset = 0.0f; // of both weights
  float eps = 1e-5f;

  bool operator==(const NormAddNormSpec&) const = default;

  bool late() const {
    return rounding == Rounding::Late;
  }
  bool is_factored() const {
    return factor || number != 1.0f;
  }
  // That of x or of the sum, which is its input.
  NormSpec norm(bool has_weight) const;

  // For the self-checks: what kernels depend on, the spec that stands for all
  // that share one, and such inputs with few rows.
  void append_key(const Arrays& inputs, std::vector<int64_t>& numbers) const;
  NormAddNormSpec flags() const;
  int way_of_factor(const Arrays& inputs) const;
  Arrays few_rows(const Arrays& inputs, int rows, bool large, mx::Stream s)
      const;
};

// x, residual, [post_weight], [weight], [factor]
struct NormAddNormInputs {
  const mx::array& x;
  const mx::array& residual;
  const mx::array* post_weight;
  const mx::array* weight;
  const mx::array* factor;

  NormAddNormInputs(
      const mx::array& x,
      const mx::array& residual,
      const mx::array* post_weight,
      const mx::array* weight,
      const mx::array* factor = nullptr)
      : x(x),
        residual(residual),
        post_weight(post_weight),
        weight(weight),
        factor(factor) {}
  NormAddNormInputs(const NormAddNormSpec& spec, const mx::array* first)
      : x(*first++),
        residual(*first++),
        post_weight(spec.post_weight ? first++ : nullptr),
        weight(spec.weight ? first++ : nullptr),
        factor(spec.factor ? first++ : nullptr) {}

  mx::Dtype sum_dtype() const {
    return mx::result_type(x, residual);
  }
  // Of the norm of x, and of a sum with it.
  NormInputs of_x() const {
    return {{kX, &x}, {kWeight, post_weight}};
  }
  NormInputs of_sum(const mx::array& n) const {
    return {
        {kX, &n}, {kResidual, &residual}, {kWeight, weight}, {kFactor, factor}};
  }
  Arrays arrays() const;
};

// {normalized, sum}
struct NormAddNorm : OpOf<NormAddNorm> {
  NormAddNormSpec spec;

  NormAddNorm(NormAddNormSpec spec, Dtypes dtypes)
      : OpOf(std::move(dtypes)),
        spec(spec) {}

  bool operator==(const NormAddNorm&) const = default;
  const char* name() const override {
    return "mlx_norms::NormAddNorm";
  }
  Donors donors(const Arrays& inputs, size_t i, mx::Stream) const override {
    return {&inputs[i == 0 ? 0 : 1], &inputs[i == 0 ? 1 : 0]};
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

  // Whether one launch adds up as two do. A GPU sums a row of 16 bits in
  // another order than one of 32, of which there may be one of each; rounding
  // early, the result would not be that of two norms.
  bool suits(const Arrays& inputs, mx::Stream s) const override;
  Arrays steps(const Arrays& inputs, mx::Stream s) const override; // two norms

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

// x, sum, [post_weight], [weight], cotangent, sum_cotangent
struct NormAddNormVJPInputs {
  const mx::array& x;
  const mx::array& sum;
  const mx::array* post_weight;
  const mx::array* weight;
  const mx::array& cotangent;
  const mx::array& sum_cotangent;

  NormAddNormVJPInputs(const NormAddNormSpec& spec, const mx::array* first)
      : x(*first++),
        sum(*first++),
        post_weight(spec.post_weight ? first++ : nullptr),
        weight(spec.weight ? first++ : nullptr),
        cotangent(*first++),
        sum_cotangent(*first++) {}

  // Of the sum's norm and, given the sum's gradient, of x's.
  NormInputs of_sum() const {
    return {
        {kX, &sum},
        {kWeight, weight},
        {kCotangent, &cotangent},
        {kSumCotangent, &sum_cotangent}};
  }
  NormInputs of_x(const array& sum_gradient) const {
    return {{kX, &x}, {kWeight, post_weight}, {kCotangent, &sum_gradient}};
  }
};

// {x, sum, [post_weight], [weight]}
struct NormAddNormVJP : OpOf<NormAddNormVJP> {
  NormAddNormSpec norms;
  bool post_weight; // whether it is wanted
  bool weight;      // likewise

  NormAddNormVJP(
      NormAddNormSpec norms,
      bool post_weight,
      bool weight,
      Dtypes dtypes)
      : OpOf(std::move(dtypes)),
        norms(norms),
        post_weight(post_weight),
        weight(weight) {}

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
  Arrays steps(const Arrays& inputs, mx::Stream s)
      const override; // of two norms
  NormVJP of_x() const;
  NormVJP of_sum() const;
};

} // namespace mlx_norms
