// Copyright © 2026 mlx_norms contributors
//
// What stands in the place of mx.fast's norms and rope, and of an array's
// methods that evaluate it: in C, since the frames of a callable in Python
// would take as long as the rest of a call.

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "csrc/common/pending.h"
#include "csrc/patching/pass.h"
#include "csrc/python/function.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

PyTypeObject* native_type; // of nanobind's functions

// Attributes' names, as Python looks them up.
struct Names {
  PyObject* is_open = PyUnicode_InternFromString("is_open");
  PyObject* outer = PyUnicode_InternFromString("outer");
  PyObject* scope = PyUnicode_InternFromString("scope");
  PyObject* process = PyUnicode_InternFromString("process");
  PyObject* acts = PyUnicode_InternFromString("acts");
  PyObject* fuse = PyUnicode_InternFromString("fuse");
  PyObject* projections = PyUnicode_InternFromString("projections");
};

const Names& names() {
  static Names names;
  return names;
}

// Of a module, by an interned name; null if it has none.
PyObject* attribute_of(PyObject* module, PyObject* name) {
  return PyDict_GetItemWithError(PyModule_GetDict(module), name);
}

bool has(nb::handle of, PyObject* name) {
  return nb::getattr(of, name).is(Py_True);
}

// Of the context at hand.
nb::object innermost_entry(const Callable& of) {
  // Not PyContextVar_Get, which nanobind's list for Mac linkers lacks.
  auto entry =
      nb::steal(PyObject_Vectorcall(of.innermost, nullptr, 0, nullptr));
  if (!entry.is_valid()) {
    throw nb::python_error();
  }
  return entry;
}

// That of the innermost open entry, or else the process's: the module's
// function `current`, without its frames.
nb::object scope_of(const Callable& of, nb::object entry) {
  while (!entry.is_none() && !has(entry, names().is_open)) {
    entry = nb::getattr(entry, names().outer);
  }
  return entry.is_none() ? nb::borrow(attribute_of(of.scope, names().process))
                         : nb::getattr(entry, names().scope);
}

// What the attributes of a scope say, which never change.
struct Behavior {
  nb::object scope;
  bool acts = false;
  bool projections = false;
  bool fuse = false;

  explicit Behavior(nb::object of)
      : scope(std::move(of)),
        acts(has(scope, names().acts)),
        projections(has(scope, names().projections)),
        fuse(has(scope, names().fuse)) {}
};

// How often a scope has been opened, closed or set, and how many are open, in
// any thread. Python's code calls scopes_changed each time.
size_t scope_changes = 1;
int scopes_open = 0;

// That of the scope at hand, kept until a scope changes or another context's
// entry is the innermost one. While none is open there is no need to ask.
const Behavior& current_behavior(const Callable& of) {
  struct Latest {
    size_t changes = 0;
    nb::object entry;
    Behavior behavior;
  };
  static Latest* latest = nullptr;
  auto entry = scopes_open == 0 ? nb::none() : innermost_entry(of);
  if (!latest || latest->changes != scope_changes || !latest->entry.is(entry)) {
    auto* found =
        new Latest{scope_changes, entry, Behavior(scope_of(of, entry))};
    delete std::exchange(latest, found);
  }
  return latest->behavior;
}

// Whether a test has put another function in the place of ours, before the
// scope at hand.
bool is_ours_replaced(Callable& of) {
  if (of.looked_at != scope_changes) {
    auto* ours = attribute_of(of.module, of.ours);
    of.is_replaced = !ours || Py_TYPE(ours) != native_type;
    of.looked_at = scope_changes;
  }
  return of.is_replaced;
}

// Nullopt: the result has to come from call_ours.
std::optional<PyObject*>
call_ours_at_once(Callable& of, PyObject* const* arguments, size_t positional) {
  if (!of.quick || is_ours_replaced(of)) {
    return std::nullopt;
  }
  try {
    return call_at_once(*of.quick, arguments, positional);
  } catch (const std::invalid_argument&) { // MLX's, of a call that is its own
    return PyObject_Vectorcall(of.original, arguments, positional, nullptr);
  } catch (const std::exception&) { // raised again, as Python's
    return std::nullopt;
  }
}

// The result of ours; null, with Python's error set, if it fails.
PyObject* call_ours(
    Callable& of,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  if (!keywords) {
    auto positional = PyVectorcall_NARGS(flags);
    if (auto y = call_ours_at_once(of, arguments, positional)) {
      return *y;
    }
  }
  auto ours = nb::getattr(of.module, of.ours);
  return PyObject_Vectorcall(ours.ptr(), arguments, flags, keywords);
}

// Calls ours, or MLX's.
PyObject* call_replacement(
    PyObject* self,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  auto& of = *reinterpret_cast<Callable*>(self);
  try {
    if (current_behavior(of).acts) {
      auto* result = call_ours(of, arguments, flags, keywords);
      if (result == Py_None) {
        Py_DECREF(result); // left to MLX
      } else if (result || !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return result;
      } else {
        PyErr_Clear(); // the original's message fits the caller's arguments
      }
    }
  } catch (nb::python_error& error) {
    error.restore();
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
  bool may_be_composed = composes_ropes(mx::to_stream({}));
  for (size_t i = 0; keywords && i < nb::len(keywords); ++i) {
    may_be_composed |= PyUnicode_CompareWithASCIIString(
                           PyTuple_GET_ITEM(keywords, i), "stream") == 0;
  }
  if (may_be_composed) {
    return call_replacement(self, arguments, flags, keywords);
  }
  auto& of = *reinterpret_cast<Callable*>(self);
  return PyObject_Vectorcall(of.original, arguments, flags, keywords);
}

// Of an array, which has to be evaluated unless it has been.
PyObject* call_method(
    PyObject* self,
    PyObject* const* arguments,
    size_t flags,
    PyObject* keywords) {
  auto& of = *reinterpret_cast<Callable*>(self);
  auto a = PyVectorcall_NARGS(flags) > 0 ? as_array(arguments[0]) : nullptr;
  if (a && *a && is_pending(**a)) {
    try {
      const auto& behavior = current_behavior(of);
      if (behavior.fuse || behavior.projections) {
        fuse_at_eval({**a}, behavior.fuse, behavior.projections);
      }
    } catch (nb::python_error& error) {
      error.restore();
      return nullptr;
    }
  }
  return PyObject_Vectorcall(of.original, arguments, flags, keywords);
}

void set_scope(Callable& function, const nb::module_& scope) {
  function.scope = scope.inc_ref().ptr();
  auto innermost = nb::getattr(scope, "_innermost");
  function.innermost = nb::getattr(innermost, "get").release().ptr();
}

nb::object evaluating_method(
    const nb::object& original,
    const nb::module_& scope) {
  nb::object made;
  auto& function = make_function(made, original, /* is_method= */ true);
  function.vectorcall = call_method;
  function.ours = nb::str("").release().ptr(); // as a replacement
  set_scope(function, scope);
  return made;
}

nb::object replacement(
    const nb::object& original,
    const nb::str& ours,
    const nb::module_& scope) {
  nb::object made;
  auto& function = make_function(made, original);
  bool is_rope = std::string_view(ours.c_str()) == "patched_rope";
  function.vectorcall = is_rope ? call_rope : call_replacement;
  function.quick = find_quick_call(ours.c_str());
  function.ours = PyUnicode_InternFromString(ours.c_str());
  function.module = nb::module_::import_("mlx_norms._ext").release().ptr();
  set_scope(function, scope);
  return made;
}

} // namespace

void bind_replacement(nb::module_& m) {
  native_type = Py_TYPE(nb::getattr(m, "rms_norm").ptr());
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
