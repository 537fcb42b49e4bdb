// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/cuda/kernel_text.h"
#include "csrc/gpu/launch_plan.h"

struct CUfunc_st;

namespace mlx_norms::cuda {

constexpr int kBuffers = 31; // as many as Metal has
constexpr int kArgumentBytes = 512;

// A kernel compiled for one device, one set of function constants and one
// threadgroup size.
struct Kernel {
  CUfunc_st* function;
  // The pointers' offsets in bytes by buffer index; -1 if the kernel has none.
  std::array<int16_t, kBuffers> offsets;
  int words;   // where the launch's words begin
  int layouts; // and those of its layouts
};

// Compiled at first use, which takes about 0.2 s, and kept on disk for other
// processes: in $MLX_NORMS_CACHE, or ~/.cache/mlx_norms. Throws KernelError if
// it cannot be built.
const Kernel& kernel_for(const Launch& launch, int device);

} // namespace mlx_norms::cuda
