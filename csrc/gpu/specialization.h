// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// The key of a compiled kernel.
struct Specialization {
  KernelName name;
  int device;
  uint32_t threads; // per threadgroup, if the machine code depends on it
  // The function constants in the order of the launch, then zeros.
  std::array<uint8_t, 48> constants;

  bool operator==(const Specialization&) const = default;
};

// Throws KernelError if a constant does not fit a byte.
Specialization
specialization_of(const Launch& launch, int device, uint32_t threads);

struct SpecializationHash {
  size_t operator()(const Specialization& key) const;
};

} // namespace mlx_norms
