// Copyright © 2026 mlx_norms contributors

#pragma once

#include <map>
#include <string>

#include "csrc/gpu/cuda/kernel_text.h"
#include "csrc/gpu/launch_plan.h"

namespace mlx_norms::cuda {

struct Cubin {
  std::string code;
  std::string symbol; // of the kernel in it
};

// The machine code of a launch's kernel, from disk if it is there.
Cubin cubin_for(
    const Launch& launch,
    const KernelText& text,
    int compute_capability);

// How many specializations of each kernel are on disk, for any machine.
std::map<std::string, int> cubins_on_disk();

} // namespace mlx_norms::cuda
