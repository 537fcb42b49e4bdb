// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>

#include "mlx/mlx.h"

namespace mlx_norms {

namespace mx = mlx::core;

// By a kernel of ours that is named, or on Metal chosen by shape ("auto", which
// elsewhere is MLX's).
mx::array matmul(
    const mx::array& a,
    const mx::array& b,
    const std::string& kernel,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
