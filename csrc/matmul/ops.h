// Copyright © 2026 mlx_norms contributors

#pragma once

#include <string>

#include "mlx/mlx.h"

namespace mlx_norms {

namespace mx = mlx::core;

struct MatmulArguments {
  const mx::array* a = nullptr;
  const mx::array* b = nullptr;
  std::string kernel = "auto";
  mx::StreamOrDevice stream;
};

// A matmul by the named kernel of ours, or with "auto" by one that is chosen by
// shape on Metal and by MLX elsewhere.
mx::array matmul(const MatmulArguments& arguments);

} // namespace mlx_norms
