// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>

namespace mlx_norms {

// The ops of norm + projection.
void bind_linear(nanobind::module_& m);

} // namespace mlx_norms
