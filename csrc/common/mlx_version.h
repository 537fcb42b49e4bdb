// Copyright © 2026 mlx_norms contributors
//
// What differs among the releases of MLX that the extension is built for: this
// file alone asks for MLX's version.

#pragma once

#include "csrc/common/types.h"
#include "mlx/allocator.h"
#include "mlx/stream.h"
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

// Runs a check of a primitive's eval. If eval throws, MLX before 0.32.2 frees
// arrays that its tasks still write, so these end first.
template <typename F>
void check_in_eval([[maybe_unused]] mx::Stream stream, F check) {
#if MLX_VERSION_NUMERIC >= 32002
  check();
#else
  try {
    check();
  } catch (...) {
    mx::synchronize(stream);
    throw;
  }
#endif
}

} // namespace mlx_norms
