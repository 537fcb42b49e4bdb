// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/isa.h"

#include <cstdlib>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mlx_norms::cpu {

namespace {

struct NamedIsa {
  std::string name;
  Isa isa;
};

#if defined(__x86_64__)
// Not every clang's __builtin_cpu_supports knows f16c.
bool has_f16c_and_fma() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) &&
      (ecx & bit_FMA);
}
#endif

std::vector<NamedIsa> available() {
  std::vector<NamedIsa> isas;
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
    isas.push_back({"avx512bf16", Isa::Avx512Bf16});
  }
#endif
#if defined(MLX_NORMS_AVX512)
  if (avx512) {
    isas.push_back({"avx512", Isa::Avx512});
  }
#endif
#if defined(MLX_NORMS_AVX2)
  if (avx2) {
    isas.push_back({"avx2", Isa::Avx2});
  }
#endif
  isas.push_back({"baseline", Isa::Baseline});
  return isas;
}

NamedIsa choose() {
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

const NamedIsa& chosen() {
  static const NamedIsa isa = choose();
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

Isa isa_in_use() {
  return chosen().isa;
}

} // namespace mlx_norms::cpu
