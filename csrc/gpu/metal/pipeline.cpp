// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/metal/pipeline.h"

#include <mutex>
#include <unordered_map>

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/check_complete.h"
#include "csrc/gpu/metal/library.h"
#include "csrc/gpu/specialization.h"

namespace mlx_norms {

namespace {

Pipeline build(const Launch& launch) {
  auto kernel = launch.kernel.text();
  auto name = kernel;
  mx::metal::MTLFCList constants;
  for (const auto& c : launch.constants) {
    name += '_' + std::to_string(c.index) + '_' + std::to_string(c.value);
    // A bool is read from its lowest byte.
    auto type = c.is_bool ? MTL::DataTypeBool : MTL::DataTypeInt;
    constants.emplace_back(&c.value, type, c.index);
  }
  check_complete(launch);
  auto* library = library_of(launch.kernel);
  try {
    auto& device = mx::metal::device(mx::Device::gpu);
    auto* state = device.get_kernel(kernel, library, name, constants);
    auto max = state->maxTotalThreadsPerThreadgroup();
    return {std::move(name), state, static_cast<uint32_t>(max)};
  } catch (const std::exception& e) {
    throw UnbuiltKernel(
        "[mlx_norms] Kernel " + kernel + " cannot be built: " + e.what());
  }
}

std::mutex mutex;

// Its elements have stable addresses.
auto& built() {
  static auto* map =
      new std::unordered_map<Specialization, Pipeline, SpecializationHash>();
  return *map;
}

// Why those that cannot be built cannot: the compiler is asked once.
auto& refused() {
  static auto* map =
      new std::unordered_map<Specialization, std::string, SpecializationHash>();
  return *map;
}

} // namespace

const Pipeline& pipeline_for(const Launch& launch) {
  auto key = specialization_of(launch, 0, 0);
  {
    std::lock_guard lock(mutex);
    if (auto it = built().find(key); it != built().end()) {
      return it->second;
    }
    if (auto it = refused().find(key); it != refused().end()) {
      throw UnbuiltKernel(it->second);
    }
  }
  // Outside the lock, so that threads compile in parallel.
  try {
    auto pipeline = build(launch);
    std::lock_guard lock(mutex);
    return built().emplace(key, std::move(pipeline)).first->second;
  } catch (const UnbuiltKernel& e) {
    std::lock_guard lock(mutex);
    refused().emplace(key, e.what());
    throw;
  }
}

std::vector<Pipeline> pipelines() {
  std::lock_guard lock(mutex);
  std::vector<Pipeline> all;
  for (const auto& [_, pipeline] : built()) {
    all.push_back(pipeline);
  }
  return all;
}

} // namespace mlx_norms
