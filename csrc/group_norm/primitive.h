// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/merging.h"
#include "csrc/group_norm/spec.h"
#include "mlx/primitives.h"

namespace mlx_norms {

class GroupNorm : public mx::Primitive {
 public:
  GroupNorm(mx::Stream stream, GroupNormSpec spec, mx::Dtype dtype)
      : Primitive(stream),
        spec_(spec),
        dtype_(dtype) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::GroupNorm";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  void check_shapes(const Arrays& inputs) const;

  GroupNormSpec spec_;
  mx::Dtype dtype_; // of the normalized output
  Merging merging_;
};

class GroupNormVJP : public mx::Primitive {
 public:
  GroupNormVJP(mx::Stream stream, GroupNormVJPSpec spec)
      : Primitive(stream),
        spec_(spec) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::GroupNormVJP";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  void check_shapes(const Arrays& inputs) const;

  GroupNormVJPSpec spec_;
  Merging merging_;
};

} // namespace mlx_norms
