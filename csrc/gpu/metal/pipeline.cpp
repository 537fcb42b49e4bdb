// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/metal/pipeline.h"

#include <mutex>
#include <unordered_map>

#include "csrc/common/kernel_error.h"
#include "csrc/common/self_check.h"
#include "csrc/gpu/check_complete.h"
#include "csrc/gpu/first_uses.h"
#include "csrc/gpu/metal/compiler.h"
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
    auto* state = ask_compiler(
        [&] { return device.get_kernel(kernel, library, name, constants); });
    auto max = state->maxTotalThreadsPerThreadgroup();
    auto group = launch.group[0] * launch.group[1] * launch.group[2];
    return {std::move(name), state, static_cast<uint32_t>(max), group};
  } catch (const std::exception& e) {
    throw UnbuiltKernel(
        "[mlx_norms] Kernel " + kernel + " cannot be built: " + e.what(),
        is_of_text(e.what()));
  }
}

std::mutex mutex;

// Its elements have stable addresses.
auto& built() {
  static auto* map =
      new std::unordered_map<Specialization, Pipeline, SpecializationHash>();
  return *map;
}

struct Refusal {
  UnbuiltKernel error;
  unsigned uses; // of the kernel so far
};

// Why those that cannot be built cannot.
auto& refused() {
  static auto* map =
      new std::unordered_map<Specialization, Refusal, SpecializationHash>();
  return *map;
}

// Whether the compiler is asked again. A self-check counts its uses itself.
bool is_due(Refusal& refusal) {
  return !refusal.error.lasting &&
      (self_check::is_running() || is_tried_again(++refusal.uses));
}

} // namespace

const Pipeline& pipeline_for(const Launch& launch) {
  auto key = specialization_of(launch, 0, 0);
  {
    std::lock_guard lock(mutex);
    if (auto it = built().find(key); it != built().end()) {
      return it->second;
    }
    auto it = refused().find(key);
    if (it != refused().end() && !is_due(it->second)) {
      throw it->second.error;
    }
  }
  // Outside the lock, so that our pipelines that are built are found. No two
  // builds are made at once, and all of MLX's launches wait for one: MLX holds
  // its locks of libraries and kernels while Metal compiles.
  try {
    auto pipeline =
        first_use(launch.kernel.text(), [&] { return build(launch); });
    std::lock_guard lock(mutex);
    refused().erase(key);
    return built().emplace(key, std::move(pipeline)).first->second;
  } catch (const UnbuiltKernel& e) {
    std::lock_guard lock(mutex);
    refused().try_emplace(key, e, 1).first->second.error = e;
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
