// Copyright © 2026 mlx_norms contributors

#pragma once

#include "mlx/backend/metal/device.h"

namespace mlx_norms {

// The kernels: the metallib beside the extension where the build had a Metal
// compiler, else compiled from their text at first use.
MTL::Library* kernel_library(mlx::core::metal::Device& device);

} // namespace mlx_norms
