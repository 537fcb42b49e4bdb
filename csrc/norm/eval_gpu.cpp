// Copyright © 2026 mlx_norms contributors

#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/gpu/memory.h"
#include "csrc/gpu/run.h"
#include "csrc/norm/plan.h"
#include "csrc/norm/primitive.h"

namespace mlx_norms {

void Norm::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  release_inputs(inputs, outputs);
  auto* out = outputs.data();
  for (size_t i = 0; i < inputs.size(); i += spec_.n_inputs()) {
    NormInputs in(spec_, &inputs[i]);
    gpu::allocate(out[0], stream(), {&in.x, in.residual, in.gate});
    if (spec_.residual) {
      gpu::allocate(out[1], stream(), {in.residual, &in.x});
    }
    out += spec_.n_outputs();
  }
  run(inputs, outputs, stream(), [&](const Arrays& in) {
    return plan_norm(spec_, in, outputs, stream());
  });
}

void NormVJP::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  check_in_eval(stream(), [&] { check_shapes(inputs); });
  release_inputs(inputs, outputs);
  NormVJPInputs in(spec_.norm, inputs.data());
  bool once = !reads_rows_again(spec_, in.s, stream());
  for (auto& out : outputs) {
    bool is_input = spec_.input && &out == &outputs[0];
    bool is_gate = spec_.gate && &out == &outputs[spec_.input];
    if (is_input && once) {
      gpu::allocate(out, stream(), {&in.cotangent, in.sum_cotangent, &in.s});
    } else if (is_gate && once) {
      gpu::allocate(out, stream(), {in.gate});
    } else {
      gpu::allocate(out, stream());
    }
  }
  run(inputs, outputs, stream(), [&](const Arrays& given) {
    return plan_norm_vjp(spec_, given, outputs, stream());
  });
}

} // namespace mlx_norms
