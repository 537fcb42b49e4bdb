// Copyright © 2026 mlx_norms contributors

#pragma once

#include "mlx/stream.h"

namespace mlx_norms {

// What runs the norms on a stream: kernels of our own, or MLX's ops.
enum class Backend { Cpu, Metal, Composed };

Backend backend_of(mlx::core::Stream stream);

} // namespace mlx_norms
