// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/cuda/module.h"

#include <mutex>
#include <unordered_map>

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/check_complete.h"
#include "csrc/gpu/cuda/cubin.h"
#include "csrc/gpu/cuda/driver.h"
#include "csrc/gpu/first_uses.h"
#include "csrc/gpu/specialization.h"

namespace mlx_norms::cuda {

namespace {

const KernelText& text_of(const std::string& name) {
  for (const auto& text : kernel_texts()) {
    if (text.name == name) {
      return text;
    }
  }
  throw KernelError("[mlx_norms] There is no kernel " + name + ".");
}

Kernel load(const Launch& launch, int device) {
  auto name = launch.kernel.text();
  const auto& text = text_of(name);
  check_complete(launch);
  auto cubin = cubin_for(launch, text, compute_capability(device));
  CUmod_st* module; // kept for the process
  check_driver(
      driver().module_load_data(&module, cubin.code.data()),
      "Loading kernel " + name);
  Kernel kernel{nullptr, {}, text.parameters.words, text.parameters.layouts};
  kernel.offsets.fill(-1);
  for (const auto& [index, offset] : text.parameters.pointers) {
    kernel.offsets.at(index) = offset;
  }
  if (text.parameters.end > kArgumentBytes) {
    throw KernelError(
        "[mlx_norms] Kernel " + name + " has too many arguments.");
  }
  check_driver(
      driver().module_get_function(
          &kernel.function, module, cubin.symbol.c_str()),
      "Finding kernel " + name);
  if (launch.staged_bytes > 0) {
    constexpr int kMaxDynamicSharedSize = 8; // CU_FUNC_ATTRIBUTE_...
    check_driver(
        driver().func_set_attribute(
            kernel.function, kMaxDynamicSharedSize, launch.staged_bytes),
        "Giving shared memory to kernel " + name);
  }
  return kernel;
}

} // namespace

const Kernel& kernel_for(const Launch& launch, int device) {
  struct Entry {
    std::once_flag loaded;
    Kernel kernel;
  };
  static std::mutex mutex;
  static auto* entries =
      new std::unordered_map<Specialization, Entry, SpecializationHash>();
  const auto& [x, y, z] = launch.group;
  auto key = specialization_of(launch, device, x * y * z);
  Entry* entry; // its address is stable
  {
    std::lock_guard lock(mutex);
    entry = &(*entries)[key];
  }
  // Outside the lock, so that threads compile in parallel.
  std::call_once(entry->loaded, [&] {
    entry->kernel =
        first_use(launch.kernel.text(), [&] { return load(launch, device); });
  });
  return entry->kernel;
}

} // namespace mlx_norms::cuda
