// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/merging.h"
#include "csrc/norm/spec.h"
#include "mlx/primitives.h"

namespace mlx_norms {

// The norms, forward. Inputs and outputs are one group per tensor (see
// NormSpec); two tensors of one row length and dtype, as in qk_norm, are
// normalized in one launch.
class Norm : public mx::Primitive {
 public:
  Norm(mx::Stream stream, NormSpec spec, mx::Dtype dtype)
      : Primitive(stream),
        spec_(spec),
        dtype_(dtype) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override;
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;
  std::vector<mx::Dtype> output_dtypes(const Arrays& inputs) const;

  // Throws std::invalid_argument if shapes do not fit each other. Evaluation
  // asks: shapeless compile has made the node of other shapes than a call's.
  void check_shapes(const Arrays& inputs) const;

  const NormSpec& spec() const {
    return spec_;
  }
  mx::Dtype dtype() const {
    return dtype_;
  }

 private:
  NormSpec spec_;
  mx::Dtype dtype_; // of the normalized output
  Merging merging_;
};

// The gradients of one normalized tensor.
class NormVJP : public mx::Primitive {
 public:
  NormVJP(mx::Stream stream, NormVJPSpec spec, std::vector<mx::Dtype> dtypes)
      : Primitive(stream),
        spec_(spec),
        dtypes_(std::move(dtypes)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::NormVJP";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  void check_shapes(const Arrays& inputs) const;

  NormVJPSpec spec_;
  std::vector<mx::Dtype> dtypes_; // of the outputs
  Merging merging_;
};

} // namespace mlx_norms
