// Copyright © 2026 mlx_norms contributors

#pragma once

namespace mlx_norms {

// a / b rounded up, for a up to its type's largest value.
template <typename T>
T ceil_div(T a, T b) {
  return a / b + (a % b != 0);
}

} // namespace mlx_norms
