// Copyright © 2026 mlx_norms contributors

#pragma once

#include <stdexcept>

namespace mlx_norms {

// A kernel that this GPU cannot build or launch, whatever its arguments.
struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace mlx_norms
