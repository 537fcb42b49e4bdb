// Copyright © 2026 mlx_norms contributors

#include "csrc/common/backend.h"

namespace mlx_norms {

Backend gpu_backend() {
  return Backend::Metal;
}

} // namespace mlx_norms
