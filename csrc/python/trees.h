// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace mlx_norms {

// The arrays in nested lists, tuples and dicts, whatever the methods of their
// classes do; once for each place.
std::vector<nanobind::handle> arrays_in(nanobind::handle tree);

} // namespace mlx_norms
