// Copyright © 2026 mlx_norms contributors

#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/gpu/memory.h"
#include "csrc/gpu/run.h"
#include "csrc/norm/channels/plan.h"
#include "csrc/norm/channels/primitive.h"

namespace mlx_norms {

void ChannelNorm::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  release_inputs(inputs, outputs);
  gpu::allocate(outputs[0], stream(), {&inputs[0]});
  run(inputs, outputs, stream(), [&](const Arrays& in) {
    return plan_channel_norm(spec_, axis_, in, outputs[0], stream());
  });
}

void ChannelNormVJP::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  release_inputs(inputs, outputs);
  for (auto& out : outputs) {
    if (spec_.input && &out == &outputs[0]) {
      gpu::allocate(out, stream(), {&inputs.back(), &inputs.front()});
    } else {
      gpu::allocate(out, stream());
    }
  }
  run(inputs, outputs, stream(), [&](const Arrays& in) {
    return plan_channel_norm_vjp(spec_, axis_, in, outputs, stream());
  });
}

} // namespace mlx_norms
