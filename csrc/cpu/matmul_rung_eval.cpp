// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/matmul_rung.h"

namespace mlx_norms {

// matmul refuses CPU streams.
void MatmulRung::eval_cpu(const Arrays&, Arrays&) {
  throw std::logic_error("[mlx_norms] A rung of a ladder has no CPU kernel.");
}

} // namespace mlx_norms
