// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>
#include <vector>

namespace mlx_norms::cpu {

// The instruction sets that kernels can be compiled for. CMakeLists.txt defines
// a macro for each that is built: MLX_NORMS_AVX2 and so on.
enum class Isa { Baseline, Avx2, Avx512, Avx512Bf16 };

// The instruction sets that this machine can run, best first.
std::vector<std::string> available_isas();

// The one in use: the best, or what MLX_NORMS_CPU_ISA names. Throws
// std::invalid_argument if that is not available.
const std::string& isa();
Isa isa_in_use();

} // namespace mlx_norms::cpu
