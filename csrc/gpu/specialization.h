// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// What a compiled kernel is kept by.
struct Specialization {
  KernelName name;
  int device;
  uint32_t threads; // of a group, where the machine code depends on them
  // The function constants in the order of the kernel's plan, and zeros.
  std::array<uint8_t, 32> constants;

  bool operator==(const Specialization&) const = default;
};

// Throws KernelError if a constant does not fit a byte.
Specialization
specialization_of(const Launch& launch, int device, uint32_t threads);

struct SpecializationHash {
  size_t operator()(const Specialization& key) const;
};

} // namespace mlx_norms
