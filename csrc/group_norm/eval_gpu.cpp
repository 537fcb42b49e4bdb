// Copyright © 2026 mlx_norms contributors

#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/gpu/memory.h"
#include "csrc/gpu/run.h"
#include "csrc/group_norm/plan.h"
#include "csrc/group_norm/primitive.h"

namespace mlx_norms {

void GroupNorm::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  release_inputs(inputs, outputs);
  gpu::allocate(outputs[0], stream(), {&inputs[0]});
  for (size_t i = 1; i < outputs.size(); ++i) {
    gpu::allocate(outputs[i], stream());
  }
  run(inputs, outputs, stream(), [&](const Arrays& in) {
    return plan_group_norm(spec_, in, outputs, stream());
  });
}

void GroupNormVJP::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  release_inputs(inputs, outputs);
  if (spec_.input) {
    gpu::allocate(outputs[0], stream(), {&inputs.back(), &inputs[0]});
  }
  for (size_t i = spec_.input; i < outputs.size(); ++i) {
    gpu::allocate(outputs[i], stream());
  }
  run(inputs, outputs, stream(), [&](const Arrays& in) {
    return plan_group_norm_vjp(spec_, in, outputs, stream());
  });
}

} // namespace mlx_norms
