// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/layer_norm.h"

namespace mlx_norms {

void LayerNormRung::eval_cpu(const Arrays&, Arrays&) {
  throw std::logic_error("[mlx_norms] A rung is on the CPU."); // the op refuses
}

} // namespace mlx_norms
