// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/sources.h"

#include <algorithm>
#include <vector>

#include "csrc/norm/norm.h"

namespace mlx_norms {

namespace {

constexpr size_t kFarAbove = 6; // nodes

} // namespace

bool is_given(const array& a, int walk) {
  return !is_pending(a) ||
      (walk > 0 && a.inputs().size() == 1 && !op_of<Norm>(a) &&
       is_given(a.inputs()[0], walk - 1));
}

std::vector<std::uintptr_t> sources_of(const array& norm) {
  std::vector<std::uintptr_t> ids;
  auto* a = &norm.inputs()[0];
  while (ids.size() < kFarAbove) {
    ids.push_back(node_id(*a));
    if (!is_pending(*a) || op_of<Norm>(*a) || a->inputs().empty()) {
      break;
    }
    const array* only = nullptr;
    for (const auto& in : a->inputs()) {
      bool another = !is_given(in);
      if (another && only) {
        return ids;
      }
      only = another ? &in : only;
    }
    a = only ? only : &a->inputs()[0];
  }
  return ids;
}

bool share_source(
    const std::vector<std::uintptr_t>& a,
    const std::vector<std::uintptr_t>& b) {
  return std::ranges::any_of(a, [&](std::uintptr_t id) {
    return std::ranges::find(b, id) != b.end();
  });
}

} // namespace mlx_norms
