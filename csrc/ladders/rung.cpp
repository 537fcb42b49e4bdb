// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/rung.h"

#include <algorithm>

#include "csrc/common/checks.h"

namespace mlx_norms {

bool Rung::takes(mx::Dtype dtype) const {
  return std::ranges::find(dtypes, dtype) != dtypes.end();
}

const Rung& find_rung(
    const char* op,
    const std::vector<Rung>& rungs,
    const std::string& name) {
  std::string names;
  for (const auto& rung : rungs) {
    if (rung.name == name) {
      return rung;
    }
    names += (names.empty() ? "" : ", ") + std::string(rung.name);
  }
  refuse(op, "rung must be one of " + names + " but is \"" + name + "\".");
}

std::string text(const std::vector<mx::Dtype>& dtypes) {
  std::string names;
  for (auto dtype : dtypes) {
    names += (names.empty() ? "" : " or ") + text(dtype);
  }
  return names;
}

} // namespace mlx_norms
