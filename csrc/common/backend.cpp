// Copyright © 2026 mlx_norms contributors

#include "csrc/common/backend.h"

namespace mlx_norms {

Backend backend_of(mlx::core::Stream stream) {
  if (stream.device == mlx::core::Device::cpu) {
    return Backend::Cpu;
  }
#ifdef MLX_NORMS_METAL
  return Backend::Metal;
#else
  return Backend::Cuda;
#endif
}

} // namespace mlx_norms
