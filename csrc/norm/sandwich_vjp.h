// Copyright © 2026 mlx_norms contributors
//
// The gradients of norm_add_norm in one launch: that of the sum is the
// cotangent of x's norm, and is read by nobody else.

#pragma once

#include "csrc/common/merging.h"
#include "csrc/norm/sandwich.h"

namespace mlx_norms {

// Those of x and of the sum, which is the residual's, and of these weights.
struct SandwichVJPSpec {
  SandwichSpec norms;
  bool post_weight = false;
  bool weight = false;

  bool operator==(const SandwichVJPSpec&) const = default;

  NormVJPSpec of_x() const;
  NormVJPSpec of_sum() const;
};

// x, sum, [post_weight], [weight], cotangent, sum_cotangent
struct SandwichVJPInputs {
  const mx::array& x;
  const mx::array& sum;
  const mx::array* post_weight;
  const mx::array* weight;
  const mx::array& cotangent;
  const mx::array& sum_cotangent;

  SandwichVJPInputs(const SandwichSpec& spec, const mx::array* first)
      : x(*first++),
        sum(*first++),
        post_weight(spec.post_weight ? first++ : nullptr),
        weight(spec.weight ? first++ : nullptr),
        cotangent(*first++),
        sum_cotangent(*first++) {}
};

// {x, sum, [post_weight], [weight]}
class NormAddNormVJP : public mx::Primitive {
 public:
  NormAddNormVJP(
      mx::Stream stream,
      SandwichVJPSpec spec,
      std::vector<mx::Dtype> dtypes)
      : Primitive(stream),
        spec_(spec),
        dtypes_(std::move(dtypes)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::NormAddNormVJP";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  void check_shapes(const Arrays& inputs) const;

  SandwichVJPSpec spec_;
  std::vector<mx::Dtype> dtypes_; // of the outputs
  Merging merging_;
};

// Whether there is a kernel for these inputs that can be trusted.
bool has_kernel(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream);

// By that kernel.
Arrays norm_add_norm_vjp_node(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

// The same in MLX's ops.
Arrays fallback_norm_add_norm_vjp(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream);

// See common/self_check.h.
bool agrees(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream);

// Whether a GPU's threads hold what the kernel needs of such rows.
bool holds_rows(const SandwichVJPInputs& in, mx::Stream stream);

// Its launches. Outputs have been allocated.
LaunchPlan plan_norm_add_norm_vjp(
    const SandwichVJPSpec& spec,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

} // namespace mlx_norms
