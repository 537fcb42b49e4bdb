// Copyright © 2026 mlx_norms contributors

#pragma once

#include "mlx/stream.h"

namespace mlx_norms {

// The backend whose kernels run on a stream.
enum class Backend { Cpu, Metal, Cuda };

Backend backend_of(mlx::core::Stream stream);

} // namespace mlx_norms
