// Copyright © 2026 mlx_norms contributors

#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "mlx/array.h"

namespace mlx_norms {

namespace mx = mlx::core;

using mx::array; // MLX's macros use this name
using Arrays = std::vector<array>;
using OptionalArray = std::optional<array>;
using Function = std::function<Arrays(const Arrays&)>;

template <typename T>
const T* pointer_to(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

// A number as an array of this dtype has it.
inline float rounded_to(float number, mx::Dtype dtype) {
  return dtype == mx::float16 ? static_cast<float>(mx::float16_t(number))
      : dtype == mx::bfloat16 ? static_cast<float>(mx::bfloat16_t(number))
                              : number;
}

} // namespace mlx_norms
