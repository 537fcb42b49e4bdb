// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>

namespace mlx_norms {

// The functions of each folder of csrc, with their docstrings.
void bind_norm(nanobind::module_& m);
void bind_add_norm(nanobind::module_& m); // of sums with a residual
void bind_group_norm(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_quantized_matmul(nanobind::module_& m);
void bind_matmul(nanobind::module_& m);
void bind_ladders(nanobind::module_& m);
void bind_patching(nanobind::module_& m);
void bind_functions(nanobind::module_& m); // with attributes

// What the machine and the build support.
void bind_device(nanobind::module_& m);

// Switches for tests and measurements.
void bind_switches(nanobind::module_& m);

} // namespace mlx_norms
