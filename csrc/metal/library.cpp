// Copyright © 2026 mlx_norms contributors

#include "csrc/metal/library.h"

#include <mutex>

#include "csrc/plan/kernel_error.h"

#ifdef MLX_NORMS_METALLIB
#include <dlfcn.h>

#include <filesystem>
#else
#include "csrc/metal/kernel_text.h"
#endif

namespace mlx_norms {

namespace {

// MLX keeps libraries by name for the process.
MTL::Library* load(mlx::core::metal::Device& device) {
#ifdef MLX_NORMS_METALLIB
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&kernel_library), &info)) {
    throw std::runtime_error("its place on disk cannot be found");
  }
  auto path = std::filesystem::path(info.dli_fname)
                  .replace_filename("mlx_norms.metallib");
  return device.get_library("mlx_norms", path.string());
#else
  return device.get_library(
      kernel_text_name, [] { return std::string(kernel_text); });
#endif
}

} // namespace

MTL::Library* kernel_library(mlx::core::metal::Device& device) {
  // What could not be built is not tried again: it takes long.
  static std::mutex mutex;
  static std::string failure;
  std::lock_guard lock(mutex);
  if (failure.empty()) {
    try {
      return load(device);
    } catch (const std::exception& e) {
      failure = e.what();
    }
  }
  throw KernelError(
      "[mlx_norms] The library of kernels cannot be built: " + failure);
}

} // namespace mlx_norms
