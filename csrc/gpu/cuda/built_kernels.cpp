// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/built_kernels.h"

#include <algorithm>

#include "csrc/gpu/cuda/cubin.h"
#include "csrc/gpu/cuda/kernel_text.h"

namespace mlx_norms {

std::vector<BuiltKernel> built_kernels() {
  auto on_disk = cuda::cubins_on_disk();
  std::vector<BuiltKernel> kernels;
  for (const auto& text : cuda::kernel_texts()) {
    BuiltKernel kernel{text.name, {}, on_disk[text.name]};
    for (const auto& constant : text.constants) {
      kernel.constants.emplace(constant.index, constant.name);
    }
    kernels.push_back(std::move(kernel));
  }
  std::ranges::sort(kernels, {}, &BuiltKernel::name);
  return kernels;
}

std::vector<BuiltLibrary> built_libraries() {
  return {};
}

std::vector<BuiltPipeline> built_pipelines() {
  return {};
}

} // namespace mlx_norms
