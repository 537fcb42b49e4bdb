// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/norm.h"

namespace mlx_norms {

// C = A B by a kernel of the SGEMM ladder, on a GPU. The inputs are dense
// float32 arrays [..., M, K] and [..., K, N], whose batch axes broadcast.
class MatmulRung : public mx::Primitive {
 public:
  MatmulRung(mx::Stream stream, const Rung& rung)
      : Primitive(stream),
        rung_(rung) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::MatmulRung";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  const Rung& rung_; // of sgemm_rungs()
};

// The product of any two arrays that check_product lets pass.
array matmul_rung(const Rung& rung, array a, array b, mx::Stream stream);

// Throws std::invalid_argument where a and b have no product.
void check_product(const array& a, const array& b);

} // namespace mlx_norms
