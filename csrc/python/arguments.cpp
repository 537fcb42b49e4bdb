// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"

#include <new>
#include <stdexcept>

namespace nb = nanobind;

namespace mlx_norms {

const array* array_in(PyObject* given) {
  static auto* type = reinterpret_cast<PyTypeObject*>(nb::type<array>().ptr());
  return PyObject_TypeCheck(given, type) && nb::inst_ready(given)
      ? nb::inst_ptr<array>(given)
      : nullptr;
}

void refuse_type(
    const char* op,
    const char* argument,
    const char* wanted,
    PyObject* given) {
  PyErr_Format(
      PyExc_TypeError,
      "[%s] %s must be %s but is %s.",
      op,
      argument,
      wanted,
      Py_TYPE(given)->tp_name);
  throw nb::python_error();
}

void refuse_call(const char* op, const char* what, PyObject* keyword) {
  auto* message = keyword ? "[%s] %s %R." : "[%s] %s.";
  PyErr_Format(PyExc_TypeError, message, op, what, keyword);
  throw nb::python_error();
}

void set_error() {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "mlx_norms failed.");
  }
}

} // namespace mlx_norms
