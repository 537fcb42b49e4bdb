// Copyright © 2026 mlx_norms contributors
//
// A primitive's derivatives, computed as those of its fallback.

#pragma once

#include "csrc/common/pending.h"
#include "csrc/common/types.h"
#include "mlx/transforms.h"

namespace mlx_norms {

inline Arrays select(const Arrays& arrays, const std::vector<int>& indices) {
  Arrays selected;
  for (auto i : indices) {
    selected.push_back(arrays[i]);
  }
  return selected;
}

// f, a function of all primals, as a function of those in argnums only.
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

// Whether `a` is pending zeros, which MLX makes as the cotangent of an output
// that takes no part in what is differentiated.
inline bool is_made_of_zeros(const array& a) {
  return as_number_throughout(a) == 0.0f;
}

// Outputs that take no part are left out: zero times a value that is not finite
// is NaN.
inline Arrays vjp_of(
    const Function& f,
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums) {
  std::vector<int> used;
  for (int i = 0; i < static_cast<int>(cotangents.size()); ++i) {
    if (cotangents.size() == 1 || !is_made_of_zeros(cotangents[i])) {
      used.push_back(i);
    }
  }
  auto g = of_selected(f, primals, argnums);
  auto of_used = [&](const Arrays& free) { return select(g(free), used); };
  return mx::vjp(of_used, select(primals, argnums), select(cotangents, used))
      .second;
}

} // namespace mlx_norms
