// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>

namespace mlx_norms {

// Each room's functions, with their docstrings.
void bind_norm(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_matmul(nanobind::module_& m);
void bind_ladders(nanobind::module_& m);
void bind_patching(nanobind::module_& m);

// What the machine and the build have.
void bind_device(nanobind::module_& m);

// What tests and measurements set.
void bind_switches(nanobind::module_& m);

} // namespace mlx_norms
