// Copyright © 2026 mlx_norms contributors
//
// layer_norm by a kernel of the ladder. Such a kernel is asked for by its name,
// to be looked at: it has no CPU form, and on Metal no check before its first
// use (self_check.h), since no other op could stand in for it.

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/norm/ops.h"
#include "csrc/norm/primitive.h"

namespace mlx_norms {

class LayerNormRung : public mx::Primitive {
 public:
  // The rung is one of layer_norm_rungs().
  LayerNormRung(mx::Stream stream, const Rung& rung, NormSpec spec)
      : Primitive(stream),
        rung_(rung),
        spec_(spec) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::LayerNormRung";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  const Rung& rung_;
  NormSpec spec_;
};

// Throws std::invalid_argument where the op with this kernel does not take the
// arguments.
mx::array layer_norm_by(
    const char* kernel,
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
