// Copyright © 2026 mlx_norms contributors

#include "csrc/metal/library.h"

#ifdef MLX_NORMS_METALLIB
#include <dlfcn.h>

#include <filesystem>
#else
#include "csrc/metal/kernel_text.h"
#endif

namespace mlx_norms {

#ifdef MLX_NORMS_METALLIB

MTL::Library* kernel_library(mlx::core::metal::Device& device) {
  static const auto path = [] {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&kernel_library), &info)) {
      throw std::runtime_error(
          "[mlx_norms] The place of mlx_norms.metallib cannot be found.");
    }
    return std::filesystem::path(info.dli_fname)
        .replace_filename("mlx_norms.metallib")
        .string();
  }();
  return device.get_library("mlx_norms", path);
}

#else

MTL::Library* kernel_library(mlx::core::metal::Device& device) {
  // MLX keeps libraries by name for the process.
  return device.get_library(
      kernel_text_name, [] { return std::string(kernel_text); });
}

#endif

} // namespace mlx_norms
