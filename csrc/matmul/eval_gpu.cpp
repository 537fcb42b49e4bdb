// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/memory.h"
#include "csrc/matmul/plan.h"
#include "csrc/matmul/primitive.h"

namespace mlx_norms {

void Matmul::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  auto& c = outputs[0];
  gpu::allocate(c, stream());
  auto plan = kernel_ == ProductKernel::Gemv ? plan_gemv
      : kernel_ == ProductKernel::Blocked    ? plan_blocked
                                             : plan_matmul;
  encode(plan(inputs[0], inputs[1], c, stream()));
}

} // namespace mlx_norms
