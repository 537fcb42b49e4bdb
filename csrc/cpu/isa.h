// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>
#include <vector>

namespace mlx_norms::cpu {

// The instruction sets that this machine can run of those that kernels are
// compiled for, best first.
std::vector<std::string> available_isas();

// The one in use: the best, or what MLX_NORMS_CPU_ISA names. Throws
// std::invalid_argument if that is not available.
const std::string& isa();

} // namespace mlx_norms::cpu
