// Copyright © 2026 mlx_norms contributors
//
// norm_add_norm: the norm of residual + norm(x), and that sum, as in models
// with a norm after and before each layer.

#pragma once

#include "csrc/common/merging.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Both are RMSNorms, and have these options in common.
struct SandwichSpec {
  bool post_weight = false; // of x's norm
  bool weight = false;      // of the sum's
  bool clamp = false;       // a float16 sum saturates instead of reaching inf
  Rounding rounding = Rounding::Early;
  float weight_offset = 0.0f; // of both weights
  float eps = 1e-5f;

  bool operator==(const SandwichSpec&) const = default;

  bool late() const {
    return rounding == Rounding::Late;
  }
  NormSpec norm_of_x() const;
  // Of the sum, which is its input.
  NormSpec norm_of_sum() const;
};

// x, residual, [post_weight], [weight]
struct SandwichInputs {
  const mx::array& x;
  const mx::array& residual;
  const mx::array* post_weight;
  const mx::array* weight;

  SandwichInputs(
      const mx::array& x,
      const mx::array& residual,
      const mx::array* post_weight,
      const mx::array* weight)
      : x(x),
        residual(residual),
        post_weight(post_weight),
        weight(weight) {}
  SandwichInputs(const SandwichSpec& spec, const mx::array* first)
      : x(*first++),
        residual(*first++),
        post_weight(spec.post_weight ? first++ : nullptr),
        weight(spec.weight ? first++ : nullptr) {}

  mx::Dtype sum_dtype() const {
    return mx::result_type(x, residual);
  }
  Arrays arrays() const;
};

// {normalized, sum}
class NormAddNorm : public mx::Primitive {
 public:
  NormAddNorm(mx::Stream stream, SandwichSpec spec, mx::Dtype dtype)
      : Primitive(stream),
        spec_(spec),
        dtype_(dtype) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::NormAddNorm";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  void check_shapes(const Arrays& inputs) const;

  SandwichSpec spec_;
  mx::Dtype dtype_; // of the normalized output
  Merging merging_;
};

// {normalized, sum}, by a kernel that can be trusted or else in more than one
// step. The inputs have been checked.
Arrays make_norm_add_norm(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// The same, by a kernel.
Arrays norm_add_norm_node(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// The same in MLX's ops.
Arrays fallback_norm_add_norm(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

// Whether the kernel for these inputs can be used (see common/self_check.h).
bool agrees(
    const SandwichSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

// Its launch. Outputs have been allocated.
LaunchPlan plan_norm_add_norm(
    const SandwichSpec& spec,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

} // namespace mlx_norms
