// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/memory.h"
#include "csrc/ladders/sgemm_plan.h"
#include "csrc/matmul/plan.h"
#include "csrc/matmul/primitive.h"

namespace mlx_norms {

void Product::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  const auto &a = inputs[0], &b = inputs[1];
  auto& c = outputs[0];
  gpu::allocate(c, stream());
  std::string_view name = kernel_.name;
  encode(
      name == "auto"       ? plan_matmul(a, b, c, stream())
          : name == "gemv" ? plan_gemv(a, b, c, stream())
          : name == "simdgroup_blocked"
          ? plan_blocked(a, b, c, stream())
          : plan_sgemm(kernel_, a, b, c, stream()));
}

} // namespace mlx_norms
