// Copyright © 2026 mlx_norms contributors

// The software device runs on CPU streams: to the ops they are a Metal GPU's.

#include "csrc/common/backend.h"

namespace mlx_norms {

Backend backend_of(mlx::core::Stream) {
  return Backend::Metal;
}

} // namespace mlx_norms
