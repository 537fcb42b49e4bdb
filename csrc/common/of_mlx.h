// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"
#include "mlx/primitives.h"

namespace mlx_norms {

// MLX's primitive, with other derivatives or another vmap.
class OfMlx : public mx::Primitive {
 public:
  OfMlx(mx::Stream stream, std::shared_ptr<Primitive> of_mlx)
      : Primitive(stream),
        of_mlx_(std::move(of_mlx)) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override {
    of_mlx_->eval_cpu(inputs, outputs);
  }
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override {
    of_mlx_->eval_gpu(inputs, outputs);
  }
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override {
    return of_mlx_->output_shapes(inputs);
  }

 protected:
  std::shared_ptr<Primitive> of_mlx_;
};

} // namespace mlx_norms
