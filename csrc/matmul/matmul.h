// Copyright © 2026 mlx_norms contributors
//
// C = A B by a kernel of ours on a GPU.

#pragma once

#include "csrc/matmul/product.h"

namespace mlx_norms {

// The kernels of kernels/matmul, or the one of them that suits the shapes. On
// Metal a kernel is checked before its first use.
enum class ProductKernel { ByShape, Gemv, Blocked };

// The name that matmul accepts.
const char* text(ProductKernel kernel);

struct Matmul : Product<Matmul> {
  ProductKernel kernel;

  Matmul(ProductKernel kernel, mx::Dtype dtype)
      : Product(dtype),
        kernel(kernel) {}

  bool operator==(const Matmul&) const = default;
  const char* name() const override {
    return "mlx_norms::Matmul";
  }
  void check(const Arrays& inputs) const override;
  LaunchPlan plan(const Arrays& inputs, const Arrays& outputs, mx::Stream s)
      const override;

  array times(const array& a, const array& b, mx::Stream s) const override;
  Arrays vjp(
      const Arrays& primals,
      const Arrays& cotangents,
      const std::vector<int>& argnums,
      const Arrays& outputs,
      mx::Stream s) const override;
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
