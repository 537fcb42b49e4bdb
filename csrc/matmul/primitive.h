// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"
#include "mlx/primitives.h"

namespace mlx_norms {

// C = A B by a kernel of ours on a GPU, with derivatives that are matmuls by
// the same kernel. The inputs are arrays [..., M, K] and [..., K, N] of one
// dtype, whose batch axes broadcast.
class Product : public mx::Primitive {
 public:
  using Primitive::Primitive;

  DEFINE_GRADS()
  DEFINE_VMAP()
  std::vector<mx::Shape> output_shapes(const Arrays& inputs) override;

 private:
  // The matmul of any two arrays that pass check().
  virtual array times(const array& a, const array& b) = 0;

  // Throws std::invalid_argument if a and b cannot be multiplied, or not by the
  // kernel.
  virtual void check(const array& a, const array& b) const = 0;
};

// The node's output for a and b, either of which may have a single axis.
array output_of(std::shared_ptr<Product> node, array a, array b);

// Throws std::invalid_argument, in the name of the op, if a and b cannot be
// multiplied.
void check_factors(const char* op, const array& a, const array& b);

// The kernels of kernels/matmul, or the one of them that suits the shapes. On
// Metal a kernel is checked before its first use.
enum class ProductKernel { ByShape, Gemv, Blocked };

// The name that matmul accepts.
const char* text(ProductKernel kernel);

class Matmul : public Product {
 public:
  Matmul(mx::Stream stream, ProductKernel kernel)
      : Product(stream),
        kernel_(kernel) {}

  void eval_cpu(const Arrays& inputs, Arrays& outputs) override;
  void eval_gpu(const Arrays& inputs, Arrays& outputs) override;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs) override;
  const char* name() const override {
    return "mlx_norms::Matmul";
  }
  bool is_equivalent(const Primitive& other) const override;

 private:
  array times(const array& a, const array& b) override;
  void check(const array& a, const array& b) const override;

  ProductKernel kernel_;
};

// The matmul of any two arrays of one dtype, float32, float16 or bfloat16, that
// pass check_product().
array product(
    ProductKernel kernel,
    const array& a,
    const array& b,
    mx::Stream stream);

// Throws std::invalid_argument if a and b cannot be multiplied, or not by this
// kernel.
void check_product(const array& a, const array& b, ProductKernel kernel);

} // namespace mlx_norms
