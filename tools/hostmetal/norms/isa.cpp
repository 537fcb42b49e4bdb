// Copyright © 2026 mlx_norms contributors

// There are no CPU kernels in this extension.

#include "csrc/cpu/isa.h"
#include "csrc/cpu/threads.h"

namespace mlx_norms::cpu {

std::vector<std::string> available_isas() {
  return {};
}

const std::string& isa() {
  static const std::string none = "none";
  return none;
}

int thread_count() {
  return 1;
}

} // namespace mlx_norms::cpu
