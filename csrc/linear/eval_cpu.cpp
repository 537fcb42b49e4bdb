// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/primitive.h"

namespace mlx_norms {

void NormLinear::eval_cpu(const Arrays&, Arrays&) {
  throw std::logic_error(
      "[mlx_norms] A norm with its projections is on the CPU, which takes two "
      "steps.");
}

} // namespace mlx_norms
