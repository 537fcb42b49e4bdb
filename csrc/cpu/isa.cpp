// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/isa.h"

#include <cstdlib>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mlx_norms::cpu {

// The ops' tables of kernels, of which each instruction set has one.
struct Kernels;
struct RopeKernels;

#define MLX_NORMS_TABLES(isa)             \
  extern const Kernels kernels_##isa;     \
  namespace rope {                        \
  extern const RopeKernels kernels_##isa; \
  }

MLX_NORMS_TABLES(baseline)
MLX_NORMS_TABLES(avx2)
MLX_NORMS_TABLES(avx512)
MLX_NORMS_TABLES(avx512bf16)

namespace {

struct Isa {
  std::string name;
  const Kernels* norm;
  const RopeKernels* rope;
};

#define MLX_NORMS_ISA(isa)                     \
  Isa {                                        \
    #isa, &kernels_##isa, &rope::kernels_##isa \
  }

#if defined(__x86_64__)
// Not every clang's __builtin_cpu_supports knows f16c.
bool has_f16c_and_fma() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) &&
      (ecx & bit_FMA);
}
#endif

// CMakeLists.txt defines a macro for each that is built.
std::vector<Isa> available() {
  std::vector<Isa> isas;
#if defined(__x86_64__)
  __builtin_cpu_init();
  [[maybe_unused]] bool avx2 =
      __builtin_cpu_supports("avx2") && has_f16c_and_fma();
  [[maybe_unused]] bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
#if defined(MLX_NORMS_AVX512BF16)
  if (avx512 && __builtin_cpu_supports("avx512bf16")) {
    isas.push_back(MLX_NORMS_ISA(avx512bf16));
  }
#endif
#if defined(MLX_NORMS_AVX512)
  if (avx512) {
    isas.push_back(MLX_NORMS_ISA(avx512));
  }
#endif
#if defined(MLX_NORMS_AVX2)
  if (avx2) {
    isas.push_back(MLX_NORMS_ISA(avx2));
  }
#endif
  isas.push_back(MLX_NORMS_ISA(baseline));
  return isas;
}

Isa choose() {
  auto isas = available();
  const char* forced = std::getenv("MLX_NORMS_CPU_ISA");
  if (!forced || !*forced) {
    return isas.front();
  }
  std::string names;
  for (auto& isa : isas) {
    if (isa.name == forced) {
      return isa;
    }
    names += (names.empty() ? "" : ", ") + isa.name;
  }
  throw std::invalid_argument(
      "[mlx_norms] MLX_NORMS_CPU_ISA must be one of " + names +
      " on this machine but is " + forced + ".");
}

const Isa& chosen() {
  static const Isa isa = choose();
  return isa;
}

} // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (auto& isa : available()) {
    names.push_back(isa.name);
  }
  return names;
}

const std::string& isa() {
  return chosen().name;
}

const Kernels& kernels() {
  return *chosen().norm;
}

const RopeKernels& rope_kernels() {
  return *chosen().rope;
}

} // namespace mlx_norms::cpu
