// Copyright © 2026 mlx_norms contributors

#pragma once

#include <bit>
#include <stdexcept>
#include <string>

namespace mlx_norms {

// A kernel that this GPU cannot build or launch, whatever its arguments.
struct KernelError : std::runtime_error {
  // Not: the compiler may have faltered, and build it another time.
  bool lasting;

  explicit KernelError(const std::string& what, bool lasting = true)
      : std::runtime_error(what),
        lasting(lasting) {}
};

// One that cannot be built. Nothing of its plan has been encoded.
struct UnbuiltKernel : KernelError {
  using KernelError::KernelError;
};

constexpr unsigned kMaxTries = 3;

// Whether what has failed so far is tried at its nth use, counted from 1: after
// some failures ever less often, as each try may take seconds.
inline bool is_tried_again(unsigned use) {
  return use <= kMaxTries || std::has_single_bit(use);
}

} // namespace mlx_norms
