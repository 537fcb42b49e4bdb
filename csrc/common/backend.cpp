// Copyright © 2026 mlx_norms contributors

#include "csrc/common/backend.h"

namespace mlx_norms {

namespace {

const Backend kGpu = gpu_backend();

} // namespace

Backend backend_of(mlx::core::Stream stream) {
  return stream.device == mlx::core::Device::cpu ? Backend::Cpu : kGpu;
}

} // namespace mlx_norms
