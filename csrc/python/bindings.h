// Copyright © 2026 mlx_norms contributors

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/variant.h> // without it no call has a stream that fits

#include <initializer_list>
#include <utility>
#include <variant>

#include "csrc/common/types.h"

namespace mlx_norms {

// A rope's. Python's bool is an int, which neither we nor MLX take for one.
using Offset = std::variant<bool, int, array>;

// Defines a function whose result depends on its arguments: a header for each
// form, of which the last is of any. All are the same function.
template <typename F, typename... Extra>
void def_forms(
    nanobind::module_& m,
    const char* name,
    std::initializer_list<const char*> headers,
    const char* doc,
    F function,
    const Extra&... extra) {
  for (auto* header : headers) {
    m.def(
        name,
        function,
        extra...,
        nanobind::sig(header),
        std::exchange(doc, ""));
  }
}

// The functions of each folder of csrc, with their docstrings.
void bind_norm(nanobind::module_& m);
void bind_add_norm(nanobind::module_& m); // of sums with a residual
void bind_group_norm(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_quantized_matmul(nanobind::module_& m);
void bind_matmul(nanobind::module_& m);
void bind_ladders(nanobind::module_& m);
void bind_launch(nanobind::module_& m);
void bind_patching(nanobind::module_& m);
void bind_rope(nanobind::module_& m);
void bind_functions(nanobind::module_& m); // with attributes
void bind_replacement(nanobind::module_& m);

// What the machine and the build support.
void bind_device(nanobind::module_& m);

// Switches for tests and measurements.
void bind_switches(nanobind::module_& m);

} // namespace mlx_norms
