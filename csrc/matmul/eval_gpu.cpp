// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/memory.h"
#include "csrc/gpu/run.h"
#include "csrc/matmul/plan.h"
#include "csrc/matmul/primitive.h"

namespace mlx_norms {

void Matmul::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  auto& c = outputs[0];
  gpu::allocate(c, stream());
  auto plan = kernel_ == ProductKernel::Gemv ? plan_gemv
      : kernel_ == ProductKernel::Blocked    ? plan_blocked
                                             : plan_matmul;
  run(inputs, outputs, stream(), [&](const Arrays& in) {
    return plan(in[0], in[1], c, stream());
  });
}

} // namespace mlx_norms
