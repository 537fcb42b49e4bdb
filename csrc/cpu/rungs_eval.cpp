// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/matmul_rung.h"

namespace mlx_norms {

// The ops refuse CPU streams.

void LayerNormRung::eval_cpu(const Arrays&, Arrays&) {
  throw std::logic_error("[mlx_norms] A rung is on the CPU.");
}

void MatmulRung::eval_cpu(const Arrays&, Arrays&) {
  throw std::logic_error("[mlx_norms] A rung is on the CPU.");
}

} // namespace mlx_norms
