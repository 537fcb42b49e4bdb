// Copyright © 2026 mlx_norms contributors
//
// Calls with arrays and eps, all by position, as nearly all of some functions
// are: nanobind's dispatch takes as long as the rest of such a call, and more
// the more options a function has.

#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "csrc/patching/patched.h"
#include "csrc/python/bindings.h"

namespace mlx_norms {

struct QuickCall {
  using Arrays = std::array<const mx::array*, 3>; // null: None, but the first

  const char* name; // of a function of this module
  size_t n_arrays;
  std::optional<mx::array> (*call)(const Arrays& arrays, float eps);
};

// Null if there is none of this function.
const QuickCall* find_quick_call(std::string_view function);

// The array, or null of None; nullopt of anything else.
std::optional<const mx::array*> as_array(PyObject* given);

// The result; nullopt if the arguments are others, which nanobind has to take.
std::optional<PyObject*> call_at_once(
    const QuickCall& quick,
    PyObject* const* arguments,
    size_t positional);

} // namespace mlx_norms
