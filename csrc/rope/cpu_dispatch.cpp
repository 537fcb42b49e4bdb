// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/dispatch.h"
#include "csrc/rope/cpu_kernels.h"

namespace mlx_norms::cpu {

namespace rope {
MLX_NORMS_KERNELS_BY_ISA(RopeKernels)
} // namespace rope

const RopeKernels& rope_kernels() {
  static const RopeKernels* const chosen = rope::kernels_for(isa_in_use());
  return *chosen;
}

} // namespace mlx_norms::cpu
