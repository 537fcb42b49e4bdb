// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/merging.h"
#include "csrc/norm/spec.h"
#include "mlx/primitives.h"

namespace mlx_norms {

// A norm over an axis that is not the last one, such as the channels of
// [B, C, H, W]. Inputs are x, [weight], [bias].
class ChannelNorm : public mx::Primitive {
 public:
  // The axis is counted from the end, so that a batch axis may be put before.
  ChannelNorm(mx::Stream stream, NormSpec spec, int axis, mx::Dtype dtype)
      : Primitive(stream),
        spec_(spec),
        axis_(axis),
        dtype_(dtype) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return spec_.center ? "mlx_norms::ChannelLayerNorm"
                        : "mlx_norms::ChannelRMSNorm";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  void check_shapes(const Arrays& inputs) const;

  NormSpec spec_;
  int axis_;
  mx::Dtype dtype_;
};

// Its gradients. Inputs are x, [weight] and the cotangent, outputs those that
// the spec wants: of x, weight and bias.
class ChannelNormVJP : public mx::Primitive {
 public:
  ChannelNormVJP(
      mx::Stream stream,
      NormVJPSpec spec,
      int axis,
      std::vector<mx::Dtype> dtypes)
      : Primitive(stream),
        spec_(spec),
        axis_(axis),
        dtypes_(std::move(dtypes)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::ChannelNormVJP";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  void check_shapes(const Arrays& inputs) const;

  NormVJPSpec spec_;
  int axis_;
  std::vector<mx::Dtype> dtypes_; // of the outputs
  Merging merging_;
};

} // namespace mlx_norms
