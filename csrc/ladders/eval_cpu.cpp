// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"

namespace mlx_norms {

// The ladders refuse CPU streams.

void LayerNormRung::eval_cpu(const Arrays&, Arrays&) {
  throw std::logic_error("[mlx_norms] A rung is on the CPU.");
}

void SgemmRung::eval_cpu(const Arrays&, Arrays&) {
  throw std::logic_error("[mlx_norms] A rung is on the CPU.");
}

} // namespace mlx_norms
