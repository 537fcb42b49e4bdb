// Copyright © 2026 mlx_norms contributors
//
#include "csrc/python/function.h"

#include <structmember.h>

#include <cstddef>
#include <string_view>

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

constexpr PyObject* Callable::* kReferences[] = {
    &Callable::attributes,
    &Callable::original,
    &Callable::ours,
    &Callable::module,
    &Callable::scope,
    &Callable::innermost,
};

// Puts a sentence that names the argument in the place of nanobind's error.
void explain(
    Callable* function,
    PyObject* const* arguments,
    size_t positional,
    PyObject* keywords) {
  nb::python_error refused;
  std::string_view what = refused.what();
  if (what.find("incompatible function arguments") == what.npos) {
    return refused.restore();
  }
  try {
    nb::list args;
    for (size_t i = 0; i < positional; ++i) {
      args.append(nb::handle(arguments[i]));
    }
    nb::dict named;
    for (size_t i = 0; keywords && i < nb::len(keywords); ++i) {
      named[nb::handle(PyTuple_GET_ITEM(keywords, i))] =
          nb::handle(arguments[positional + i]);
    }
    auto functions = nb::module_::import_("mlx_norms._functions");
    auto sentence = functions.attr("explain")(
        nb::handle(&function->base),
        nb::handle(function->original),
        nb::tuple(args),
        named);
    if (sentence.is_none()) {
      return refused.restore();
    }
    PyErr_SetObject(PyExc_TypeError, sentence.ptr());
  } catch (nb::python_error& error) {
    error.restore();
  }
}

PyObject* call_op(
    PyObject* self,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  auto* of = reinterpret_cast<Callable*>(self);
  auto positional = PyVectorcall_NARGS(flags);
  if (of->quick && !keywords) {
    try {
      auto y = call_at_once(*of->quick, arguments, positional);
      if (y) {
        return *y;
      }
    } catch (const std::exception&) { // raised again, as Python's
    }
  }
  auto* result = PyObject_Vectorcall(of->original, arguments, flags, keywords);
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) {
    explain(of, arguments, positional, keywords);
  }
  return result;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* of = reinterpret_cast<Callable*>(self);
  Py_VISIT(Py_TYPE(self));
  for (auto member : kReferences) {
    Py_VISIT(of->*member);
  }
  return 0;
}

int clear(PyObject* self) {
  auto* of = reinterpret_cast<Callable*>(self);
  for (auto member : kReferences) {
    Py_CLEAR(of->*member);
  }
  return 0;
}

void deallocate(PyObject* self) {
  auto* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  PyObject_ClearWeakRefs(self);
  clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* repr(PyObject* self) {
  auto attribute = [self](const char* name) {
    return nb::steal(PyObject_GetAttrString(self, name));
  };
  auto module = attribute("__module__"), name = attribute("__qualname__");
  return module.is_valid() && name.is_valid()
      ? PyUnicode_FromFormat("<function %S.%S>", module.ptr(), name.ptr())
      : nullptr;
}

// Of an op; a replacement has that of what it wraps.
PyObject* signature(PyObject* self, void*) {
  auto* of = reinterpret_cast<Callable*>(self);
  if (of->ours) {
    PyErr_SetString(PyExc_AttributeError, "__signature__");
    return nullptr;
  }
  try {
    auto functions = nb::module_::import_("mlx_norms._functions");
    return functions.attr("signature")(nb::handle(of->original))
        .release()
        .ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

// Copied and pickled by name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(self, "__qualname__");
}

PyMemberDef members[] = {
    {"__vectorcalloffset__",
     T_PYSSIZET,
     offsetof(Callable, vectorcall),
     READONLY,
     nullptr},
    {"__dictoffset__",
     T_PYSSIZET,
     offsetof(Callable, attributes),
     READONLY,
     nullptr},
    {"__weaklistoffset__",
     T_PYSSIZET,
     offsetof(Callable, weak_references),
     READONLY,
     nullptr},
    PyMemberDef()};
PyMethodDef methods[] = {
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    PyMethodDef()};
PyGetSetDef properties[] = {
    {"__dict__",
     PyObject_GenericGetDict,
     PyObject_GenericSetDict,
     nullptr,
     nullptr},
    {"__signature__", signature, nullptr, nullptr, nullptr},
    PyGetSetDef()};
PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(repr)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {}};
PyObject* bound(PyObject* self, PyObject* of, PyObject*) {
  return of && of != Py_None ? PyMethod_New(self, of)
                             : nb::borrow(self).release().ptr();
}
PyType_Spec spec = {
    "mlx_norms._ext.Function",
    sizeof(Callable),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_BASETYPE,
    slots};

// Of the type above, what CPython does not inherit, and how it is bound.
PyType_Slot method_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bound)},
    {}};
// A class's attribute that Python binds to the object, or calls at once.
PyType_Spec method_spec = {
    "mlx_norms._ext.Method",
    sizeof(Callable),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_METHOD_DESCRIPTOR,
    method_slots};

nb::object function(const nb::object& original) {
  nb::object made;
  auto name = nb::borrow<nb::str>(nb::getattr(original, "__name__"));
  make_function(made, original).quick = find_quick_call(name.c_str());
  return made;
}

} // namespace

Callable&
make_function(nb::object& made, const nb::object& original, bool is_method) {
  static auto* of_functions = PyType_FromSpec(&spec);
  auto* type = reinterpret_cast<PyTypeObject*>(of_functions);
  if (is_method) {
    static auto* of_methods =
        PyType_FromSpecWithBases(&method_spec, of_functions);
    type = reinterpret_cast<PyTypeObject*>(of_methods);
  }
  made = nb::steal(type ? type->tp_alloc(type, 0) : nullptr);
  if (!made.is_valid()) {
    throw nb::python_error();
  }
  auto& function = *reinterpret_cast<Callable*>(made.ptr());
  function.vectorcall = call_op;
  function.original = original.inc_ref().ptr();
  return function;
}

void bind_functions(nb::module_& m) {
  m.def(
      "function",
      &function,
      "original"_a,
      nb::sig(
          "def function(original: collections.abc.Callable) -> collections.abc.Callable"),
      "A function that calls this one, and can have attributes.");
}

} // namespace mlx_norms
