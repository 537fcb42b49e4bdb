// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/dispatch.h"
#include "csrc/norm/cpu_kernels.h"

namespace mlx_norms::cpu {

MLX_NORMS_KERNELS_BY_ISA(Kernels)

const Kernels& kernels() {
  static const Kernels* const chosen = kernels_for(isa_in_use());
  return *chosen;
}

} // namespace mlx_norms::cpu
