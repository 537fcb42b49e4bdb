// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>
#include <vector>

#include "csrc/gpu/launch_plan.h"
#include "mlx/backend/metal/device.h"

namespace mlx_norms {

// A library of kernels as this machine built it.
struct KernelLibrary {
  std::string name;
  MTL::Library* library = nullptr; // null if it cannot be built
  bool from_metallib = false;
  double seconds = 0;  // build time
  std::string failure; // of the metallib, of the text, or of both
};

// The library of a kernel: the metallib beside the extension if the build made
// one that loads, else compiled from its text. It is built at first use and a
// failure is not retried, as building takes long. Throws KernelError if it
// cannot be built.
MTL::Library* library_of(const KernelName& kernel);

// All libraries; those not built yet are built now.
std::vector<KernelLibrary> kernel_libraries();

} // namespace mlx_norms
