// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/isa.h"
#include "csrc/norm/cpu_kernels.h"

namespace mlx_norms::cpu {

extern const Kernels kernels_baseline;
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
extern const Kernels kernels_avx512bf16;

namespace {

const Kernels* kernels_for(Isa isa) {
  switch (isa) {
#ifdef MLX_NORMS_AVX2
    case Isa::Avx2:
      return &kernels_avx2;
#endif
#ifdef MLX_NORMS_AVX512
    case Isa::Avx512:
      return &kernels_avx512;
#endif
#ifdef MLX_NORMS_AVX512BF16
    case Isa::Avx512Bf16:
      return &kernels_avx512bf16;
#endif
    default:
      return &kernels_baseline;
  }
}

} // namespace

const Kernels& kernels() {
  static const Kernels* const chosen = kernels_for(isa_in_use());
  return *chosen;
}

} // namespace mlx_norms::cpu
