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
  MTL::Library* library = nullptr; // none if it cannot be built
  bool from_metallib = false;
  double seconds = 0;  // that it took
  std::string failure; // of the metallib, of the text, or of both
};

// The library that a kernel is in: the metallib beside the extension where the
// build made one that loads, else compiled from its text. Built when it is
// first asked for, and not tried again: it takes long. Throws KernelError if it
// cannot be built.
MTL::Library* library_of(const KernelName& kernel);

// All of them, each built now if it was not yet.
std::vector<KernelLibrary> kernel_libraries();

} // namespace mlx_norms
