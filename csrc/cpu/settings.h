// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/cpu/isa.h"
#include "csrc/cpu/threads.h"

namespace mlx_norms::cpu {

// Throws std::invalid_argument if MLX_NORMS_CPU_ISA or MLX_NORMS_CPU_THREADS is
// wrong. For where an op is called: what a task throws ends the process in MLX
// before 0.32.1.
inline void check_settings() {
  static const bool checked = (isa(), thread_count(), true);
  static_cast<void>(checked);
}

} // namespace mlx_norms::cpu
