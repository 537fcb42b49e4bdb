// Copyright © 2026 mlx_norms contributors

#include "csrc/built_kernels.h"

#include <algorithm>

#include <Foundation/Foundation.hpp>

#include "csrc/metal/library.h"

namespace mlx_norms {

namespace {

std::map<int, std::string> constants_of(MTL::Function* function) {
  std::map<int, std::string> constants;
  auto* found = function->functionConstantsDictionary();
  auto* names = found->keyEnumerator<NS::String>();
  while (auto* name = names->nextObject()) {
    auto* constant = found->object<MTL::FunctionConstant>(name);
    constants.emplace(constant->index(), name->utf8String());
  }
  return constants;
}

} // namespace

std::vector<BuiltKernel> built_kernels() {
  auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  auto& device = mlx::core::metal::device(mlx::core::Device::gpu);
  auto* library = kernel_library(device);
  std::vector<BuiltKernel> kernels;
  auto* names = library->functionNames();
  for (NS::UInteger i = 0; i < names->count(); ++i) {
    auto* name = names->object<NS::String>(i);
    auto function = NS::TransferPtr(library->newFunction(name));
    kernels.push_back(
        {name->utf8String(), constants_of(function.get()), std::nullopt});
  }
  std::ranges::sort(kernels, {}, &BuiltKernel::name);
  return kernels;
}

} // namespace mlx_norms
