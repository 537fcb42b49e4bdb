// Copyright © 2026 mlx_norms contributors

#include "csrc/python/trees.h"

#include <algorithm>
#include <unordered_set>

#include "mlx/array.h"

namespace nb = nanobind;

namespace mlx_norms {

namespace {

bool is_container(PyObject* node) {
  return PyDict_Check(node) || PyList_Check(node) || PyTuple_Check(node);
}

void push_items(PyObject* of, std::vector<PyObject*>& stack) {
  auto first = stack.size();
  if (PyDict_Check(of)) {
    PyObject* value;
    for (Py_ssize_t at = 0; PyDict_Next(of, &at, nullptr, &value);) {
      stack.push_back(value);
    }
  } else { // a list or a tuple
    auto** items = PySequence_Fast_ITEMS(of);
    stack.insert(stack.end(), items, items + PySequence_Fast_GET_SIZE(of));
  }
  std::reverse(stack.begin() + first, stack.end()); // the first is next
}

} // namespace

std::vector<nb::handle> arrays_in(nb::handle tree) {
  std::vector<nb::handle> arrays;
  std::vector<PyObject*> stack{tree.ptr()};
  std::unordered_set<PyObject*> seen; // containers
  auto* array_type =
      reinterpret_cast<PyTypeObject*>(nb::type<mlx::core::array>().ptr());
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    if (PyType_IsSubtype(Py_TYPE(node), array_type)) {
      arrays.push_back(node);
    } else if (is_container(node) && seen.insert(node).second) {
      push_items(node, stack);
    }
  }
  return arrays;
}

} // namespace mlx_norms
