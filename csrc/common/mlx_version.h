// Copyright © 2026 mlx_norms contributors
//
// What differs among the releases of MLX that the extension is built for: this
// file alone asks for MLX's version.

#pragma once

#include "csrc/common/types.h"
#include "mlx/allocator.h"
#include "mlx/version.h"

namespace mlx_norms {

// Whether MLX's Metal encoder lets a kernel that writes a buffer wait for those
// before it that read it. Without that, memory of inputs is not reused.
constexpr bool kMetalWaitsForReads = MLX_VERSION_NUMERIC >= 32000;

// Gives an array no memory, and MLX nothing to free.
inline void set_no_memory(array& a) {
#if MLX_VERSION_NUMERIC >= 32004
  a.set_data(mx::allocator::Data(mx::allocator::Buffer{nullptr}, nullptr));
#else
  a.set_data(mx::allocator::Buffer{nullptr}, [](mx::allocator::Buffer) {});
#endif
}

} // namespace mlx_norms
