// Copyright © 2026 mlx_norms contributors

#include "csrc/common/backend.h"

#include <cstring>

#include "csrc/gpu/cuda/imports.h"

namespace mlx_norms {

namespace {

// A weak function's address, which compilers think is never null.
template <typename F>
bool exists(F function) {
  void* address;
  std::memcpy(&address, &function, sizeof(address));
  return address != nullptr;
}

} // namespace

// MLX before 0.32.4 does not export all of these.
Backend gpu_backend() {
  using Encoder = mlx::core::cu::CommandEncoder;
  bool exported = exists(&mlx::core::cu::get_command_encoder) &&
      exists(&Encoder::set_input_array) && exists(&Encoder::set_output_array) &&
      exists(&Encoder::add_kernel_node_raw) &&
      exists(&Encoder::add_graph_node) &&
      exists(&Encoder::add_completed_handler);
  return exported ? Backend::Cuda : Backend::None;
}

} // namespace mlx_norms
