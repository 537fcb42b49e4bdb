// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/norm/spec.h"
#include "mlx/primitives.h"

namespace mlx_norms {

// layer_norm by a kernel of the ladder.
class LayerNormRung : public mx::Primitive {
 public:
  // The rung is one of layer_norm_rungs(), but not ours.
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

// Throws std::invalid_argument if the rung does not accept the arguments.
mx::array layer_norm_by_rung(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    const std::string& rung,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
