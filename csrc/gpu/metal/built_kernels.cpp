// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/built_kernels.h"

#include <algorithm>

#include <Foundation/Foundation.hpp>

#include "csrc/gpu/metal/library.h"
#include "csrc/gpu/metal/pipeline.h"

namespace mlx_norms {

namespace {

// A kernel of the library.
MTL::Function* find(MTL::Library* library, const std::string& kernel) {
  auto* names = library->functionNames();
  for (NS::UInteger i = 0; i < names->count(); ++i) {
    auto* name = names->object<NS::String>(i);
    if (kernel == name->utf8String()) {
      return library->newFunction(name);
    }
  }
  return nullptr;
}

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
  std::vector<BuiltKernel> kernels;
  for (const auto& built : kernel_libraries()) {
    for (const auto& [name, library] : built.kernels) {
      if (library) {
        auto function = NS::TransferPtr(find(library, name));
        kernels.push_back({name, constants_of(function.get()), std::nullopt});
      }
    }
  }
  std::ranges::sort(kernels, {}, &BuiltKernel::name);
  return kernels;
}

std::vector<BuiltLibrary> built_libraries() {
  auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  std::vector<BuiltLibrary> libraries;
  for (const auto& built : kernel_libraries()) {
    libraries.push_back(
        {built.name,
         built.from_metallib,
         built.seconds,
         built.failure,
         built.is_usable()});
  }
  return libraries;
}

std::vector<BuiltPipeline> built_pipelines() {
  std::vector<BuiltPipeline> found;
  for (const auto& pipeline : pipelines()) {
    auto memory = pipeline.state->staticThreadgroupMemoryLength();
    found.push_back(
        {pipeline.name,
         pipeline.max_threads,
         static_cast<uint32_t>(memory),
         pipeline.group});
  }
  std::ranges::sort(found, {}, &BuiltPipeline::name);
  return found;
}

} // namespace mlx_norms
