// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/variant.h> // without it no call has a stream that fits

#include "csrc/common/types.h"

namespace mlx_norms {

// The ops, for mlx_norms/ops: each is a C++ function, and a family has a table
// of the names of its arguments.
void bind_norms(nanobind::module_& m);
void bind_group_norms(nanobind::module_& m);
void bind_ropes(nanobind::module_& m);
void bind_products(nanobind::module_& m);

void bind_ladders(nanobind::module_& m);
void bind_launch(nanobind::module_& m);
void bind_patching(nanobind::module_& m);
void bind_replacement(nanobind::module_& m);

// What the machine and the build support.
void bind_device(nanobind::module_& m);

// Switches for tests and measurements.
void bind_switches(nanobind::module_& m);

} // namespace mlx_norms
