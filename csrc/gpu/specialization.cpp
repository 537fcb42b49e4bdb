// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/specialization.h"

#include "csrc/common/kernel_error.h"

namespace mlx_norms {

Specialization
specialization_of(const Launch& launch, int device, uint32_t threads) {
  Specialization key{launch.kernel, device, threads, {}};
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

size_t SpecializationHash::operator()(const Specialization& key) const {
  constexpr size_t kWords = sizeof(Specialization) / sizeof(uint64_t);
  uint64_t hash = 0;
  for (auto word : std::bit_cast<std::array<uint64_t, kWords>>(key)) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

} // namespace mlx_norms
