// Copyright © 2026 mlx_norms contributors

#include "csrc/common/interpreter.h"

#include <nanobind/nanobind.h>

namespace mlx_norms {

namespace nb = nanobind;

void without_interpreter(const std::function<void()>& f) {
  if (PyGILState_Check()) {
    nb::gil_scoped_release release;
    f();
  } else {
    f();
  }
}

void warn(const std::string& text) {
  nb::gil_scoped_acquire acquire;
  if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) < 0) {
    throw nb::python_error();
  }
}

} // namespace mlx_norms
