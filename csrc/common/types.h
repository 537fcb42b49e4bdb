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

} // namespace mlx_norms
