// Copyright © 2026 mlx_norms contributors
//
// The kernels that were made ready in this process, for mlx_norms.warm_up. A
// first use waits for the compiler, or reads what it left on disk.

#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace mlx_norms {

struct FirstUse {
  std::string kernel;
  double seconds;
};

void note_first_use(FirstUse use);

// In their order, without the first `seen`.
std::vector<FirstUse> first_uses(size_t seen);

// make(), which is noted unless it throws.
template <typename F>
auto first_use(const std::string& kernel, F make) {
  auto started = std::chrono::steady_clock::now();
  auto made = make();
  std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - started;
  note_first_use({kernel, took.count()});
  return made;
}

} // namespace mlx_norms
