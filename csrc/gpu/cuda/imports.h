// Copyright © 2026 mlx_norms contributors
//
// What is used of MLX's CUDA library. MLX's headers for it include CUDA's, and
// MLX's CPU library, with which the extension may be linked instead, has none
// of this. So it is declared here as in MLX 0.32.4, and weak: null without
// CUDA.

#pragma once

#include <functional>

#include "mlx/array.h"
#include "mlx/stream.h"

struct CUfunc_st;
struct CUgraph_st;
using CUfunction = CUfunc_st*;

struct dim3 {
  uint32_t x, y, z;
};

namespace mlx::core::cu {

// What an allocator::Buffer points to.
struct CudaBuffer {
  void* data;
  size_t size;
  int device; // -1: host-accessible memory
};

class CommandEncoder {
 public:
  __attribute__((weak)) void set_input_array(const array& arr);
  __attribute__((weak)) void set_output_array(const array& arr);
  __attribute__((weak)) void add_kernel_node_raw(
      CUfunction func,
      dim3 grid_dim,
      dim3 block_dim,
      dim3 cluster_dim,
      uint32_t smem_bytes,
      void** params);
  __attribute__((weak)) void add_graph_node(CUgraph_st* child);
  __attribute__((weak)) void add_completed_handler(std::function<void()> task);
};

__attribute__((weak)) CommandEncoder& get_command_encoder(Stream s);

} // namespace mlx::core::cu
