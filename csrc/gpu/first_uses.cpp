// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/first_uses.h"

#include <algorithm>
#include <mutex>

namespace mlx_norms {

namespace {

std::mutex mutex;

auto& noted() {
  static auto* uses = new std::vector<FirstUse>();
  return *uses;
}

} // namespace

void note_first_use(FirstUse use) {
  std::lock_guard lock(mutex);
  noted().push_back(std::move(use));
}

std::vector<FirstUse> first_uses(size_t seen) {
  std::lock_guard lock(mutex);
  const auto& all = noted();
  return {all.begin() + std::min(seen, all.size()), all.end()};
}

} // namespace mlx_norms
