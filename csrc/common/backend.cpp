// Copyright © 2026 mlx_norms contributors

#include "csrc/common/backend.h"

#include <cstring>

#ifndef MLX_NORMS_METAL
#include "csrc/gpu/cuda/imports.h"
#endif

namespace mlx_norms {

namespace {

#ifdef MLX_NORMS_METAL
constexpr Backend kGpu = Backend::Metal;
#else
// A weak function's address, which compilers think is never null.
template <typename F>
bool exists(F function) {
  void* address;
  std::memcpy(&address, &function, sizeof(address));
  return address != nullptr;
}

// MLX before 0.32.4 does not export all of these.
Backend gpu() {
  using Encoder = mlx::core::cu::CommandEncoder;
  bool exported = exists(&mlx::core::cu::get_command_encoder) &&
      exists(&Encoder::set_input_array) && exists(&Encoder::set_output_array) &&
      exists(&Encoder::add_kernel_node_raw) &&
      exists(&Encoder::add_graph_node) &&
      exists(&Encoder::add_completed_handler);
  return exported ? Backend::Cuda : Backend::None;
}
const Backend kGpu = gpu();
#endif

} // namespace

Backend backend_of(mlx::core::Stream stream) {
  return stream.device == mlx::core::Device::cpu ? Backend::Cpu : kGpu;
}

} // namespace mlx_norms
