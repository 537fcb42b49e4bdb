// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"
#include "csrc/ladders/rung.h"
#include "mlx/primitives.h"

namespace mlx_norms {

// C = A B by a kernel of ours, on a GPU. The inputs are arrays [..., M, K] and
// [..., K, N] of one dtype, whose batch axes broadcast.
class Product : public mx::Primitive {
 public:
  // One of sgemm_rungs() or product_kernels(), or kernel_by_shape().
  Product(mx::Stream stream, const Rung& kernel)
      : Primitive(stream),
        kernel_(kernel) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  DEFINE_GRADS()
  DEFINE_VMAP()
  const char* name() const override {
    return "mlx_norms::Product";
  }
  bool is_equivalent(const Primitive& other) const override;
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  const Rung& kernel_;
};

// Those that are no rungs: the blocked product, and gemv.
const std::vector<Rung>& product_kernels();

// Whichever of these is for the shapes. On Metal they are checked before their
// first use.
const Rung& kernel_by_shape();

// The product of any two arrays that check_product lets pass and the kernel has
// the dtype of.
array product(const Rung& kernel, array a, array b, mx::Stream stream);

// Throws std::invalid_argument where a and b have no product, or none by this
// kernel.
void check_product(const array& a, const array& b, const Rung* kernel);

} // namespace mlx_norms
