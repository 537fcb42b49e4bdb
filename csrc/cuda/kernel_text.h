// Copyright © 2026 mlx_norms contributors
//
// The kernels as CUDA text, which kernels/to_cuda translates at build. Before
// it stand, from whoever compiles it, FC_<index> for each function constant,
// GROUP_SIZE, the threads of a group, and THREADS_PER_CORE, those that a core's
// registers are to have room for.

#pragma once

#include <vector>

namespace mlx_norms::cuda {

// What stands at a buffer index of the Metal kernel.
struct Parameter {
  int index;
  int words; // 32-bit words passed by value; 0: a pointer
};

struct KernelText {
  const char* name; // as launches name it
  const char* text;
  const char* expression; // NVRTC's name expression of the kernel
  std::vector<Parameter> parameters;
  std::vector<int> constants; // indices of the function constants
};

const std::vector<KernelText>& kernel_texts();

// What NVRTC is told besides the architecture.
const std::vector<const char*>& compiler_options();

} // namespace mlx_norms::cuda
