// Copyright © 2026 mlx_norms contributors

#include "csrc/cuda/module.h"

#include <mutex>
#include <unordered_map>

#include "csrc/cuda/cubin.h"
#include "csrc/cuda/driver.h"
#include "csrc/plan/kernel_error.h"

namespace mlx_norms::cuda {

namespace {

// What a kernel is specialised by.
struct Key {
  std::vector<int32_t> words;
  std::string name;

  bool operator==(const Key&) const = default;
};

struct Hash {
  size_t operator()(const Key& key) const {
    size_t hash = std::hash<std::string>()(key.name);
    for (auto word : key.words) {
      hash = (hash ^ static_cast<uint32_t>(word)) * 0x100000001b3u;
    }
    return hash;
  }
};

Key key_of(const Launch& launch, int device) {
  Key key{{device}, launch.kernel};
  key.words.reserve(launch.constants.size() + 2);
  key.words.push_back(launch.group[0] * launch.group[1] * launch.group[2]);
  for (const auto& c : launch.constants) { // in the order of the kernel's plan
    key.words.push_back(c.value);
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
  const auto& text = text_of(launch.kernel);
  auto cubin = cubin_for(launch, text, compute_capability(device));
  CUmod_st* module; // kept for the process
  check_driver(
      driver().module_load_data(&module, cubin.code.data()),
      "Loading kernel " + launch.kernel);
  Kernel kernel{&text, nullptr};
  check_driver(
      driver().module_get_function(
          &kernel.function, module, cubin.symbol.c_str()),
      "Finding kernel " + launch.kernel);
  if (launch.slot_bytes > 0) {
    constexpr int kMaxDynamicSharedSize = 8; // CU_FUNC_ATTRIBUTE_...
    check_driver(
        driver().func_set_attribute(
            kernel.function, kMaxDynamicSharedSize, launch.slot_bytes),
        "Giving shared memory to kernel " + launch.kernel);
  }
  return kernel;
}

} // namespace

const Kernel& kernel_for(const Launch& launch, int device) {
  static std::mutex mutex;
  static auto* kernels = new std::unordered_map<Key, Kernel, Hash>();
  std::lock_guard lock(mutex);
  auto key = key_of(launch, device);
  auto it = kernels->find(key);
  if (it == kernels->end()) {
    it = kernels->emplace(std::move(key), load(launch, device)).first;
  }
  return it->second;
}

} // namespace mlx_norms::cuda
