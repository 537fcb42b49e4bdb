// Copyright © 2026 mlx_norms contributors
//
// What stands in the place of mx.fast's norms and rope, and of an array's
// methods that evaluate it: in C, since the frames of a callable in Python
// would take as long as the rest of a call.

#include <Python.h>

#include <structmember.h>

#include <string_view>
#include <utility>

#include "csrc/common/pending.h"
#include "csrc/patching/pass.h"
#include "csrc/patching/patched.h"
#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

// A callable with a function's attributes.
struct Replacement {
  PyObject base;
  vectorcallfunc vectorcall;
  PyObject* attributes; // __name__, __doc__, __wrapped__ ...
  PyObject* weak_references;
  PyObject* original;
  PyObject* ours;      // a function's name in this module; not of a method
  PyObject* module;    // of this extension; not of a method
  PyObject* scope;     // the module mlx_norms.patching.scope
  PyObject* innermost; // its variable's method `get`
};

constexpr PyObject* Replacement::* kReferences[] = {
    &Replacement::attributes,
    &Replacement::original,
    &Replacement::ours,
    &Replacement::module,
    &Replacement::scope,
    &Replacement::innermost,
};

int traverse(PyObject* self, visitproc visit, void* arg) {
  auto* of = reinterpret_cast<Replacement*>(self);
  Py_VISIT(Py_TYPE(self));
  for (auto member : kReferences) {
    Py_VISIT(of->*member);
  }
  return 0;
}

int clear(PyObject* self) {
  auto* of = reinterpret_cast<Replacement*>(self);
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

// Copied and pickled by name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(self, "__qualname__");
}

PyMemberDef members[] = {
    {"__vectorcalloffset__",
     T_PYSSIZET,
     offsetof(Replacement, vectorcall),
     READONLY,
     nullptr},
    {"__dictoffset__",
     T_PYSSIZET,
     offsetof(Replacement, attributes),
     READONLY,
     nullptr},
    {"__weaklistoffset__",
     T_PYSSIZET,
     offsetof(Replacement, weak_references),
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
// Not by PyMethod_New, which nanobind's list for Mac linkers lacks.
PyObject* bound(PyObject* self, PyObject* of, PyObject*) {
  static auto* types = PyImport_ImportModule("types");
  return of && of != Py_None
      ? PyObject_CallMethod(types, "MethodType", "OO", self, of)
      : nb::borrow(self).release().ptr();
}
PyType_Spec spec = {
    "mlx_norms._ext.Replacement",
    sizeof(Replacement),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_BASETYPE,
    slots};

// What CPython does not inherit of the type above, and how it is bound.
PyType_Slot method_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bound)},
    {}};
// A class's attribute that Python binds to the object, or calls at once.
PyType_Spec method_spec = {
    "mlx_norms._ext.ReplacedMethod",
    sizeof(Replacement),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
        Py_TPFLAGS_METHOD_DESCRIPTOR,
    method_slots};

// A replacement, or that of a method.
Replacement& make_replacement(
    nb::object& made,
    const nb::object& original,
    const nb::module_& scope,
    vectorcallfunc call,
    bool is_method = false) {
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
  auto& replacement = *reinterpret_cast<Replacement*>(made.ptr());
  replacement.vectorcall = call;
  replacement.original = original.inc_ref().ptr();
  replacement.scope = scope.inc_ref().ptr();
  auto innermost = nb::getattr(scope, "_innermost");
  replacement.innermost = nb::getattr(innermost, "get").release().ptr();
  return replacement;
}

// What the attributes of the scope at hand say, which never change.
struct Behavior {
  bool acts;
  bool fuse;
  bool projections;

  explicit Behavior(nb::handle scope)
      : acts(nb::cast<bool>(scope.attr("acts"))),
        fuse(nb::cast<bool>(scope.attr("fuse"))),
        projections(nb::cast<bool>(scope.attr("projections"))) {}
};

// The entry of the context at hand.
nb::object innermost_entry(const Replacement& of) {
  // Not PyContextVar_Get, which nanobind's list for Mac linkers lacks.
  auto entry =
      nb::steal(PyObject_Vectorcall(of.innermost, nullptr, 0, nullptr));
  if (!entry.is_valid()) {
    throw nb::python_error();
  }
  return entry;
}

// How often a scope has been opened, closed or set, and how many are open, in
// any thread. Python's code calls scopes_changed each time.
size_t scope_changes = 1;
int scopes_open = 0;

// That of the scope at hand, kept until a scope changes or another context's
// entry is the innermost one. While none is open there is no need to ask.
const Behavior& current_behavior(const Replacement& of) {
  struct Latest {
    size_t changes;
    nb::object entry;
    Behavior behavior;
  };
  static Latest* latest = nullptr;
  auto entry = scopes_open == 0 ? nb::none() : innermost_entry(of);
  if (!latest || latest->changes != scope_changes || !latest->entry.is(entry)) {
    Behavior behavior(nb::getattr(of.scope, "current")());
    delete std::exchange(latest, new Latest{scope_changes, entry, behavior});
  }
  return latest->behavior;
}

// Calls ours, or MLX's.
PyObject* call_replacement(
    PyObject* self,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  auto& of = *reinterpret_cast<Replacement*>(self);
  try {
    if (current_behavior(of).acts) {
      auto ours = nb::borrow(
          PyDict_GetItemWithError(PyModule_GetDict(of.module), of.ours));
      auto* result =
          PyObject_Vectorcall(ours.ptr(), arguments, flags, keywords);
      if (result == Py_None) {
        Py_DECREF(result); // left to MLX
      } else if (result || !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return result;
      } else {
        PyErr_Clear(); // the original's message fits the caller's arguments
      }
    }
  } catch (...) {
    set_error();
    return nullptr;
  }
  return PyObject_Vectorcall(of.original, arguments, flags, keywords);
}

// The same of a rope, which on a GPU is MLX's.
PyObject* call_rope(
    PyObject* self,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  auto is_composed = [] {
    try {
      return composes_ropes(mx::to_stream({}));
    } catch (const std::exception&) {
      return true; // which says why
    }
  };
  bool may_be_composed = is_composed();
  for (size_t i = 0; keywords && i < nb::len(keywords); ++i) {
    may_be_composed |= PyUnicode_CompareWithASCIIString(
                           PyTuple_GET_ITEM(keywords, i), "stream") == 0;
  }
  if (may_be_composed) {
    return call_replacement(self, arguments, flags, keywords);
  }
  auto& of = *reinterpret_cast<Replacement*>(self);
  return PyObject_Vectorcall(of.original, arguments, flags, keywords);
}

// Calls a method of an array, which has to be evaluated unless it has been.
PyObject* call_method(
    PyObject* self,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  auto& of = *reinterpret_cast<Replacement*>(self);
  auto* a = PyVectorcall_NARGS(flags) > 0 ? array_in(arguments[0]) : nullptr;
  if (a && is_pending(*a)) {
    try {
      const auto& behavior = current_behavior(of);
      if (behavior.fuse || behavior.projections) {
        fuse_at_eval({*a}, behavior.fuse, behavior.projections);
      }
    } catch (...) {
      set_error();
      return nullptr;
    }
  }
  return PyObject_Vectorcall(of.original, arguments, flags, keywords);
}

nb::object evaluating_method(
    const nb::object& original,
    const nb::module_& scope) {
  nb::object made;
  make_replacement(made, original, scope, call_method, /* is_method= */ true);
  return made;
}

nb::object replacement(
    const nb::object& original,
    const nb::str& ours,
    const nb::module_& scope) {
  nb::object made;
  bool is_rope = std::string_view(ours.c_str()) == "patched_rope";
  auto& of = make_replacement(
      made, original, scope, is_rope ? call_rope : call_replacement);
  of.ours = PyUnicode_InternFromString(ours.c_str());
  of.module = nb::module_::import_("mlx_norms._ext").release().ptr();
  return made;
}

} // namespace

void bind_replacement(nb::module_& m) {
  m.def(
      "replacement",
      &replacement,
      "original"_a,
      "ours"_a,
      "scope"_a,
      nb::sig(
          "def replacement(original: collections.abc.Callable, ours: str, scope: types.ModuleType) -> collections.abc.Callable"),
      "A function that calls ours of this module if the scope acts and ours "
      "takes the arguments, and else, or if ours returns None, the original.");
  m.def(
      "evaluating_method",
      &evaluating_method,
      "original"_a,
      "scope"_a,
      nb::sig(
          "def evaluating_method(original: collections.abc.Callable, scope: types.ModuleType) -> collections.abc.Callable"),
      "An array's method that makes the passes of an evaluation, as the scope "
      "says, and then calls the original.");
  m.def(
      "scopes_changed",
      [](int opened) {
        ++scope_changes;
        return scopes_open += opened;
      },
      "opened"_a,
      "Makes replacements look for their scope again, of which so many more are "
      "open now; returns how many are.");
}

} // namespace mlx_norms
