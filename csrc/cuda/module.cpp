// Copyright © 2026 mlx_norms contributors

#include "csrc/cuda/module.h"

#include <mutex>
#include <unordered_map>

#include "csrc/cuda/cubin.h"
#include "csrc/cuda/driver.h"
#include "csrc/plan/kernel_error.h"

namespace mlx_norms::cuda {

namespace {

// What a kernel is specialised by, with zeros past the last constant.
struct Key {
  KernelName name;
  int device;
  uint32_t threads;                  // of a group
  std::array<uint8_t, 32> constants; // in the order of the kernel's plan

  bool operator==(const Key&) const = default;
};

struct Hash {
  size_t operator()(const Key& key) const {
    constexpr size_t kWords = sizeof(Key) / sizeof(uint64_t);
    uint64_t hash = 0;
    for (auto word : std::bit_cast<std::array<uint64_t, kWords>>(key)) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

Key key_of(const Launch& launch, int device) {
  const auto& [x, y, z] = launch.group;
  Key key{launch.kernel, device, x * y * z, {}};
  size_t n = 0;
  for (const auto& c : launch.constants) {
    auto value = static_cast<uint8_t>(c.value);
    if (value != c.value) {
      throw KernelError(
          "[mlx_norms] A constant of kernel " + launch.kernel.text() +
          " does not fit a byte.");
    }
    key.constants.at(n++) = value;
  }
  return key;
}

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
  auto cubin = cubin_for(launch, text, compute_capability(device));
  CUmod_st* module; // kept for the process
  check_driver(
      driver().module_load_data(&module, cubin.code.data()),
      "Loading kernel " + name);
  Kernel kernel{nullptr, {}, text.parameters.layouts};
  kernel.offsets.fill(-1);
  for (const auto& [index, offset] : text.parameters.places) {
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
  if (launch.slot_bytes > 0) {
    constexpr int kMaxDynamicSharedSize = 8; // CU_FUNC_ATTRIBUTE_...
    check_driver(
        driver().func_set_attribute(
            kernel.function, kMaxDynamicSharedSize, launch.slot_bytes),
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
  static auto* entries = new std::unordered_map<Key, Entry, Hash>();
  auto key = key_of(launch, device);
  Entry* entry; // which stays where it is
  {
    std::lock_guard lock(mutex);
    entry = &(*entries)[key];
  }
  // Outside of the lock, so that threads compile side by side.
  std::call_once(entry->loaded, [&] { entry->kernel = load(launch, device); });
  return entry->kernel;
}

} // namespace mlx_norms::cuda
