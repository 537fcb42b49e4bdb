// Copyright © 2026 mlx_norms contributors
//
// A callable in C with a function's attributes: an op, whose signature Python
// can then ask for, or what one of mx.fast's norms is while something is
// patched.

#pragma once

#include "csrc/python/bindings.h"
#include "csrc/python/quick_call.h"

namespace mlx_norms {

struct Callable {
  PyObject base;
  vectorcallfunc vectorcall;
  PyObject* attributes; // __name__, __doc__, __wrapped__ ...
  PyObject* weak_references;
  PyObject* original;
  const QuickCall* quick; // may be null
  // Of a replacement.
  PyObject* ours;      // a function's name in this module
  PyObject* module;    // of this extension
  PyObject* scope;     // the module mlx_norms.patching.scope
  PyObject* innermost; // its variable's method `get`
  size_t looked_at;    // the changes of scopes when `ours` was looked at
  bool is_replaced;    // by another function
};

// A function, or a method, that calls the original.
Callable& make_function(
    nanobind::object& made,
    const nanobind::object& original,
    bool is_method = false);

} // namespace mlx_norms
