// Copyright © 2026 mlx_norms contributors
//
// Derivatives of a primitive by those of what it is composed of.

#pragma once

#include "csrc/norm.h"
#include "mlx/transforms.h"

namespace mlx_norms {

inline Arrays select(const Arrays& arrays, const std::vector<int>& indices) {
  Arrays selected;
  for (auto i : indices) {
    selected.push_back(arrays[i]);
  }
  return selected;
}

// f, which takes all primals, as a function of those in argnums alone.
inline Function of_selected(
    const Function& f,
    const Arrays& primals,
    const std::vector<int>& argnums) {
  return [=](const Arrays& free) {
    auto all = primals;
    for (size_t i = 0; i < argnums.size(); ++i) {
      all[argnums[i]] = free[i];
    }
    return f(all);
  };
}

inline Arrays jvp_of(
    const Function& f,
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto g = of_selected(f, primals, argnums);
  return mx::jvp(g, select(primals, argnums), tangents).second;
}

inline Arrays vjp_of(
    const Function& f,
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums) {
  auto g = of_selected(f, primals, argnums);
  return mx::vjp(g, select(primals, argnums), cotangents).second;
}

} // namespace mlx_norms
