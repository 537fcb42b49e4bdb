// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/primitive.h"

namespace mlx_norms {

void Matmul::eval_cpu(const Arrays&, Arrays&) {
  // The op refuses CPU streams.
  throw std::logic_error("[mlx_norms] A GPU's product is on the CPU.");
}

} // namespace mlx_norms
