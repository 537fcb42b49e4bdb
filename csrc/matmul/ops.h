// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>

#include "mlx/mlx.h"

namespace mlx_norms {

namespace mx = mlx::core;

// A matmul by the named kernel of ours, or with "auto" by one that is chosen by
// shape on Metal and by MLX elsewhere.
mx::array matmul(
    const mx::array& a,
    const mx::array& b,
    const std::string& kernel,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
