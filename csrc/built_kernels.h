// Copyright © 2026 mlx_norms contributors
//
// What GPU kernels the extension has, for `python -m mlx_norms info --kernels`.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mlx_norms {

struct BuiltKernel {
  std::string name;
  std::map<int, std::string> constants; // function constants by their indices
  // Specialisations whose machine code is on disk, where it is kept there.
  std::optional<int> on_disk;
};

// By name. Throws KernelError if the library of kernels cannot be built.
// Defined by each backend.
std::vector<BuiltKernel> built_kernels();

} // namespace mlx_norms
