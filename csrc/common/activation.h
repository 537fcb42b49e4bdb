// Copyright © 2026 mlx_norms contributors
//
// Plain data only: csrc/norm/cpu_kernels.h says why.

#pragma once

#include <cstdint>

namespace mlx_norms {

// The activation of a gate or of a result. Kernels have the numbers
// (kernels/norm/gate.h).
enum class Activation : uint8_t {
  None = 0,
  Sigmoid = 1,
  Silu = 2,
  Gelu = 3,
  Relu2 = 4 // max(x, 0)^2
};

} // namespace mlx_norms
