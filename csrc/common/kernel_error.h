// Copyright © 2026 mlx_norms contributors

#pragma once

#include <stdexcept>

namespace mlx_norms {

// A kernel that this GPU cannot build or launch, whatever its arguments.
struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One that cannot be built. Nothing of its plan has been encoded.
struct UnbuiltKernel : KernelError {
  using KernelError::KernelError;
};

} // namespace mlx_norms
