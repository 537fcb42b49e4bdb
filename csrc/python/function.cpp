// Copyright © 2026 mlx_norms contributors
//
// Callables in C with a function's attributes: the ops, whose signature Python
// can then ask for, and what mx.fast's norms are while something is patched,
// where the frames of a callable in Python would take as long as the rest of a
// call.

#include "csrc/python/bindings.h"
#include "csrc/python/quick_call.h"

#include <structmember.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

PyTypeObject* native_type; // of nanobind's functions

struct Function {
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
};

constexpr PyObject* Function::* kReferences[] = {
    &Function::attributes,
    &Function::original,
    &Function::ours,
    &Function::module,
    &Function::scope,
    &Function::innermost,
};

// Ours takes these besides the arguments of MLX's function, of at most six.
constexpr size_t kGiven = 2;
constexpr size_t kMaxArguments = 6;

// Attributes' names, as Python looks them up.
struct Names {
  PyObject* is_open = PyUnicode_InternFromString("is_open");
  PyObject* outer = PyUnicode_InternFromString("outer");
  PyObject* scope = PyUnicode_InternFromString("scope");
  PyObject* process = PyUnicode_InternFromString("process");
  PyObject* acts = PyUnicode_InternFromString("acts");
  PyObject* fusion = PyUnicode_InternFromString("fusion");
  PyObject* trace = PyUnicode_InternFromString("trace");
};

const Names& names() {
  static Names names;
  return names;
}

bool has(nb::handle of, PyObject* name) {
  return nb::getattr(of, name).is(Py_True);
}

// The module's function `current`, without its frames.
nb::object current_scope(const Function& of) {
  // Not PyContextVar_Get, which nanobind's list for Mac linkers lacks.
  auto entry =
      nb::steal(PyObject_Vectorcall(of.innermost, nullptr, 0, nullptr));
  if (!entry.is_valid()) {
    throw nb::python_error();
  }
  while (!entry.is_none() && !has(entry, names().is_open)) {
    entry = nb::getattr(entry, names().outer);
  }
  return entry.is_none() ? nb::getattr(of.scope, names().process)
                         : nb::getattr(entry, names().scope);
}

// What the attributes of a scope say, which never change.
struct Behavior {
  nb::object scope;
  bool acts = false;
  bool trace = false;
  Fusion fusion;

  explicit Behavior(nb::object of)
      : scope(std::move(of)),
        acts(has(scope, names().acts)),
        trace(has(scope, names().trace)),
        fusion(nb::cast<Fusion>(nb::getattr(scope, names().fusion))) {}
};

// That of the scope at hand. The one before's is kept, and never freed.
const Behavior& current_behavior(const Function& of) {
  static Behavior* latest = nullptr;
  auto scope = current_scope(of);
  if (!latest || !latest->scope.is(scope)) {
    auto* behavior = new Behavior(std::move(scope));
    delete std::exchange(latest, behavior);
  }
  return *latest;
}

// Nullopt: the result has to come from call_ours.
std::optional<PyObject*> call_ours_at_once(
    const Function& of,
    const Behavior& behavior,
    PyObject* const* arguments,
    size_t positional) {
  auto* ours = PyDict_GetItem(PyModule_GetDict(of.module), of.ours);
  bool is_replaced = !ours || Py_TYPE(ours) != native_type; // by a test
  if (behavior.trace || is_replaced) {
    return std::nullopt;
  }
  try {
    return call_at_once(*of.quick, arguments, positional, behavior.fusion);
  } catch (const std::invalid_argument&) { // MLX's, of a call that is its own
    return PyObject_Vectorcall(of.original, arguments, positional, nullptr);
  } catch (const std::exception&) { // raised again, as Python's
    return std::nullopt;
  }
}

// The result of ours; null, with Python's error set, if it fails.
PyObject* call_ours(
    const Function& of,
    const Behavior& behavior,
    PyObject* const* arguments,
    size_t positional,
    PyObject* keywords) {
  if (!keywords) {
    if (auto y = call_ours_at_once(of, behavior, arguments, positional)) {
      return *y;
    }
  }
  auto ours = nb::getattr(of.module, of.ours);
  auto fusion = nb::getattr(behavior.scope, names().fusion);
  nb::object tell = nb::none();
  if (behavior.trace) {
    auto sites = nb::module_::import_("mlx_norms.patching.call_sites");
    tell = sites.attr("recorder")();
  }
  std::array<PyObject*, kGiven + kMaxArguments> given{fusion.ptr(), tell.ptr()};
  size_t all = positional + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  std::copy_n(arguments, all, given.begin() + kGiven);
  return PyObject_Vectorcall(
      ours.ptr(), given.data(), kGiven + positional, keywords);
}

// Calls ours, or MLX's.
PyObject* call_replacement(
    PyObject* self,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  auto& of = *reinterpret_cast<Function*>(self);
  size_t positional = PyVectorcall_NARGS(flags);
  size_t all = positional + (keywords ? PyTuple_GET_SIZE(keywords) : 0);
  try {
    const auto& behavior = current_behavior(of);
    if (all <= kMaxArguments && behavior.acts) {
      auto* result = call_ours(of, behavior, arguments, positional, keywords);
      if (result || !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return result;
      }
      PyErr_Clear(); // the original's message fits the caller's arguments
    }
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
  return PyObject_Vectorcall(of.original, arguments, flags, keywords);
}

// Puts a sentence that names the argument in the place of nanobind's error.
void explain(
    Function* function,
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
  auto* of = reinterpret_cast<Function*>(self);
  auto positional = PyVectorcall_NARGS(flags);
  if (of->quick && !keywords) {
    try {
      auto y = call_at_once(*of->quick, arguments, positional, Fusion::Never);
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
  auto* of = reinterpret_cast<Function*>(self);
  Py_VISIT(Py_TYPE(self));
  for (auto member : kReferences) {
    Py_VISIT(of->*member);
  }
  return 0;
}

int clear(PyObject* self) {
  auto* of = reinterpret_cast<Function*>(self);
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
  auto* of = reinterpret_cast<Function*>(self);
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
     offsetof(Function, vectorcall),
     READONLY,
     nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Function, attributes), READONLY},
    {"__weaklistoffset__",
     T_PYSSIZET,
     offsetof(Function, weak_references),
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
PyType_Spec spec = {
    "mlx_norms._ext.Function",
    sizeof(Function),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    slots};

Function& make(nb::object& made, const nb::object& original) {
  static auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  made = nb::steal(type ? type->tp_alloc(type, 0) : nullptr);
  if (!made.is_valid()) {
    throw nb::python_error();
  }
  auto& function = *reinterpret_cast<Function*>(made.ptr());
  function.vectorcall = call_op;
  function.original = original.inc_ref().ptr();
  return function;
}

nb::object function(const nb::object& original) {
  nb::object made;
  auto name = nb::borrow<nb::str>(nb::getattr(original, "__name__"));
  make(made, original).quick = find_quick_call(name.c_str());
  return made;
}

nb::object replacement(
    const nb::object& original,
    const nb::str& ours,
    const nb::module_& scope) {
  nb::object made;
  auto& function = make(made, original);
  function.vectorcall = call_replacement;
  function.quick = find_quick_call(ours.c_str());
  function.ours = ours.inc_ref().ptr();
  function.module = nb::module_::import_("mlx_norms._ext").release().ptr();
  function.scope = scope.inc_ref().ptr();
  auto innermost = nb::getattr(scope, "_innermost");
  function.innermost = nb::getattr(innermost, "get").release().ptr();
  return made;
}

} // namespace

void bind_functions(nb::module_& m) {
  native_type = Py_TYPE(nb::getattr(m, "rms_norm").ptr());
  m.def(
      "function",
      &function,
      "original"_a,
      nb::sig(
          "def function(original: collections.abc.Callable) -> collections.abc.Callable"),
      "A function that calls this one, and can have attributes.");
  m.def(
      "replacement",
      &replacement,
      "original"_a,
      "ours"_a,
      "scope"_a,
      nb::sig(
          "def replacement(original: collections.abc.Callable, ours: str, scope: types.ModuleType) -> collections.abc.Callable"),
      "A function that calls ours of this module, with the scope's fusion and "
      "a function to tell the outcome before the arguments, if the scope acts "
      "and ours takes the arguments, and else the original.");
}

} // namespace mlx_norms
