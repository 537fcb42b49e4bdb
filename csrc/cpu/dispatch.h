// Copyright © 2026 mlx_norms contributors
//
// Which of the tables of kernels, one per instruction set, is in use.
// CMakeLists.txt defines the macros of the levels that are built for the files
// that include this.

#pragma once

#include "csrc/cpu/isa.h"

#ifdef MLX_NORMS_AVX2
#define MLX_NORMS_CASE_AVX2(tables) \
  case Isa::Avx2:                   \
    return &tables##_avx2;
#else
#define MLX_NORMS_CASE_AVX2(tables)
#endif
#ifdef MLX_NORMS_AVX512
#define MLX_NORMS_CASE_AVX512(tables) \
  case Isa::Avx512:                   \
    return &tables##_avx512;
#else
#define MLX_NORMS_CASE_AVX512(tables)
#endif
#ifdef MLX_NORMS_AVX512BF16
#define MLX_NORMS_CASE_AVX512BF16(tables) \
  case Isa::Avx512Bf16:                   \
    return &tables##_avx512bf16;
#else
#define MLX_NORMS_CASE_AVX512BF16(tables)
#endif

// Declares the tables of a type, kernels_LEVEL, and defines kernels_for(isa).
#define MLX_NORMS_KERNELS_BY_ISA(Table)                  \
  extern const Table kernels_baseline, kernels_avx2;     \
  extern const Table kernels_avx512, kernels_avx512bf16; \
  static const Table* kernels_for(Isa isa) {             \
    switch (isa) {                                       \
      MLX_NORMS_CASE_AVX2(kernels)                       \
      MLX_NORMS_CASE_AVX512(kernels)                     \
      MLX_NORMS_CASE_AVX512BF16(kernels)                 \
      default:                                           \
        return &kernels_baseline;                        \
    }                                                    \
  }
