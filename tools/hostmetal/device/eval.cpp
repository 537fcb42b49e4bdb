// Copyright © 2026 mlx_norms contributors

#include "eval.h"

#include "encoder.h"
#include "handlers.h"

namespace hostmetal {

void eval(
    mx::Primitive& primitive,
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs) {
  auto& recorder = encoder(primitive.stream());
  recorder.begin(primitive.name(), inputs, outputs);
  try {
    primitive.eval_gpu(inputs, outputs);
    for (size_t i = 0; i < outputs.size(); i++) {
      if (!outputs[i].data_shared_ptr()) {
        refuse(
            std::string(primitive.name()) + ": output " + std::to_string(i) +
            " has no data");
      }
    }
    recorder.submit();
  } catch (...) {
    recorder.abandon();
    throw;
  }
}

} // namespace hostmetal
