// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>

namespace mlx_norms {

// What mlx_norms/patching is made of; not meant to be called by anyone else.
void bind_patching(nanobind::module_& m);

} // namespace mlx_norms
