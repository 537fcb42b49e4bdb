// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>

namespace mlx_norms {

void bind_ladders(nanobind::module_& m);

} // namespace mlx_norms
