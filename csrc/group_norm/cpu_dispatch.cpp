// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/dispatch.h"
#include "csrc/group_norm/cpu_kernels.h"

namespace mlx_norms::cpu {

namespace group_norm {
MLX_NORMS_KERNELS_BY_ISA(GroupKernels)
} // namespace group_norm

const GroupKernels& group_kernels() {
  static const GroupKernels* const chosen =
      group_norm::kernels_for(isa_in_use());
  return *chosen;
}

} // namespace mlx_norms::cpu
