// Copyright © 2026 mlx_norms contributors

#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "csrc/gpu/launch_plan.h"
#include "mlx/backend/metal/device.h"

namespace mlx_norms {

// A library of kernels as this machine built it: from the metallib beside the
// extension if there is one that loads, else each kernel from its text.
struct KernelLibrary {
  std::string name;
  bool from_metallib = false;
  double seconds = 0;  // build time
  std::string failure; // of the metallib, of kernels' texts, or of both
  // Libraries by name. Null: it cannot be built.
  std::vector<std::pair<std::string, MTL::Library*>> kernels;

  bool is_usable() const {
    return std::ranges::all_of(kernels, [](auto& k) { return k.second; });
  }
};

// Where a kernel is, built at first use. What the compiler refuses is not tried
// again, as building takes long. Throws KernelError if it cannot be built.
MTL::Library* library_of(const KernelName& kernel);

// All libraries; what is not built yet is built now.
std::vector<KernelLibrary> kernel_libraries();

} // namespace mlx_norms
