// Copyright © 2026 mlx_norms contributors

#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/gpu/memory.h"
#include "csrc/gpu/run.h"
#include "csrc/linear/plan.h"
#include "csrc/linear/primitive.h"

namespace mlx_norms {

void NormLinear::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  release_inputs(inputs, outputs);
  for (auto& out : outputs) {
    gpu::allocate(out, stream()); // no donation: all threadgroups read all rows
  }
  run(inputs, outputs, stream(), [&](const Arrays& in) {
    return plan_norm_linear(spec_, in, outputs, stream());
  });
}

} // namespace mlx_norms
