// Copyright © 2026 mlx_norms contributors

#pragma once

#include <vector>

#include "mlx/primitives.h"

namespace hostmetal {

// What a primitive on a CPU stream has for eval_cpu: runs its eval_gpu, and
// then what that encoded, in the stream's order.
void eval(
    mlx::core::Primitive& primitive,
    const std::vector<mlx::core::array>& inputs,
    std::vector<mlx::core::array>& outputs);

} // namespace hostmetal
