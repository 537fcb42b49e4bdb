// Copyright © 2026 mlx_norms contributors
//
// What the public functions, in mlx_norms/ops, call: a function of a structure
// of arguments, whose members a call gives by name. A table has the names, and
// an argument of another type is refused in the words of the public function.

#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "csrc/common/types.h"
#include "mlx/distributed/distributed.h"
#include "mlx/utils.h"

namespace mlx_norms {

// The array, or null of anything else. Quicker than nanobind, which looks for
// the types of other modules by their names.
const array* array_in(PyObject* given);

// A type in a message.
template <typename T>
constexpr const char* kWanted = nullptr;
template <>
inline constexpr const char* kWanted<const array*> = "mx.array or None";
template <>
inline constexpr const char* kWanted<float> = "float";
template <>
inline constexpr const char* kWanted<int> = "int";
template <>
inline constexpr const char* kWanted<bool> = "bool";
template <>
inline constexpr const char* kWanted<std::optional<int>> = "int or None";
template <>
inline constexpr const char* kWanted<std::optional<float>> = "float or None";
template <>
inline constexpr const char* kWanted<std::string> = "str";
template <>
inline constexpr const char* kWanted<std::optional<std::string>> =
    "str or None";
template <>
inline constexpr const char* kWanted<std::optional<mx::Dtype>> =
    "mx.Dtype or None";
template <>
inline constexpr const char* kWanted<mx::StreamOrDevice> = "mx.StreamOrDevice";
template <>
inline constexpr const char*
    kWanted<std::optional<std::variant<array, float>>> =
        "mx.array or float or None";
template <>
inline constexpr const char* kWanted<std::variant<float, array>> =
    "float or mx.array";
template <>
inline constexpr const char* kWanted<std::variant<bool, int, array>> =
    "int or mx.array";
template <>
inline constexpr const char* kWanted<std::optional<mx::distributed::Group>> =
    "mx.distributed.Group or None";
template <>
inline constexpr const char* kWanted<Arrays> = "a sequence of arrays";
template <>
inline constexpr const char*
    kWanted<std::optional<std::vector<OptionalArray>>> =
        "a sequence of arrays or None, or None";
template <>
inline constexpr const char* kWanted<std::optional<std::vector<float>>> =
    "a sequence of floats, or None";
template <>
inline constexpr const char* kWanted<std::vector<Arrays>> =
    "mx.array or what mx.quantize returns, or a sequence of them";

// One member of a structure.
template <typename A>
struct Parameter {
  const char* name;
  const char* wanted;
  bool (*read)(PyObject* given, A& arguments); // false: of another type
};

// Without a conversion if there is a type for it: an array of one element is
// no number.
template <typename T>
bool read(PyObject* given, T& member) {
  constexpr bool kMayBeNone = std::string_view(kWanted<T>).ends_with("None");
  nanobind::handle value(given);
  return (kMayBeNone && given == Py_None) || // as the member is
      nanobind::try_cast(value, member, /* convert= */ false) ||
      nanobind::try_cast(value, member, /* convert= */ true);
}
inline bool read(PyObject* given, const array*& member) {
  return given == Py_None || (member = array_in(given));
}

template <typename M>
struct Member;
template <typename A, typename T>
struct Member<T A::*> {
  using Structure = A;
  using Type = T;
};

// An array may have to be given.
template <auto kMember, bool kRequired = false>
constexpr auto parameter(const char* name) {
  using A = typename Member<decltype(kMember)>::Structure;
  using T = typename Member<decltype(kMember)>::Type;
  static_assert(kWanted<T> != nullptr, "a message needs the type's name");
  auto* wanted = kRequired ? "mx.array" : kWanted<T>;
  return Parameter<A>{name, wanted, [](PyObject* given, A& arguments) {
                        return !(kRequired && given == Py_None) &&
                            read(given, arguments.*kMember);
                      }};
}

template <auto kMember>
constexpr auto required(const char* name) {
  return parameter<kMember, true>(name);
}

// Raises Python's error.
[[noreturn]] void refuse_type(
    const char* op,
    const char* argument,
    const char* wanted,
    PyObject* given);
[[noreturn]] void
refuse_call(const char* op, const char* what, PyObject* keyword = nullptr);

// The parameters of a structure, in the order in which calls give them: the
// first `required` of them always, and no more than `positional` by position.
template <typename A>
class Parameters {
 public:
  Parameters(
      std::initializer_list<Parameter<A>> parameters,
      size_t required = 0,
      size_t positional = 0)
      : parameters_(parameters),
        required_(required),
        positional_(positional) {
    for (const auto& each : parameters) {
      names_.push_back(PyUnicode_InternFromString(each.name));
    }
  }

  // Those of a call.
  A read(
      const char* op,
      PyObject* const* given,
      size_t positional,
      PyObject* keywords) const {
    A arguments;
    uint64_t seen = 0;
    auto read_one = [&](size_t i, PyObject* value) {
      const auto& [name, wanted, read] = parameters_[i];
      if (!read(value, arguments)) {
        refuse_type(op, name, wanted, value);
      }
      seen |= uint64_t{1} << i;
    };
    if (positional > positional_) {
      refuse_call(op, "too many positional arguments");
    }
    for (size_t i = 0; i < positional; ++i) {
      read_one(i, given[i]);
    }
    size_t n = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    for (size_t i = 0, at = positional; i < n; ++i, ++at) {
      auto* keyword = PyTuple_GET_ITEM(keywords, i);
      at = find(op, keyword, at);
      if (seen >> at & 1) {
        refuse_call(op, "got multiple values for", keyword);
      }
      read_one(at, given[positional + i]);
    }
    if (~seen & ((uint64_t{1} << required_) - 1)) {
      refuse_call(op, "missing a required argument");
    }
    return arguments;
  }

 private:
  // From `at` on, as calls are in this order, and for the same string first.
  size_t find(const char* op, PyObject* keyword, size_t at) const {
    auto n = names_.size();
    for (size_t i = 0; i < 2 * n; ++i, ++at) {
      at = at < n ? at : 0;
      if (names_[at] == keyword ||
          (i >= n && PyUnicode_Compare(names_[at], keyword) == 0)) {
        return at;
      }
    }
    refuse_call(op, "got an unexpected keyword argument", keyword);
  }

  std::vector<Parameter<A>> parameters_;
  std::vector<PyObject*> names_;
  size_t required_;
  size_t positional_;
};

// Sets Python's error of a C++ exception that is at hand.
void set_error();

template <auto kFunction>
struct Entry;

// A function of Python that reads these arguments and calls kFunction.
template <typename R, typename A, R (*kFunction)(const A&)>
struct Entry<kFunction> {
  static inline const Parameters<A>* parameters;
  static inline PyMethodDef method;

  static PyObject* call(
      PyObject*,
      PyObject* const* given,
      Py_ssize_t positional,
      PyObject* keywords) {
    try {
      auto arguments =
          parameters->read(method.ml_name, given, positional, keywords);
      return nanobind::cast(kFunction(arguments)).release().ptr();
    } catch (...) {
      set_error();
      return nullptr;
    }
  }
};

template <auto kFunction, typename A>
void def(
    nanobind::module_& m,
    const char* name,
    const Parameters<A>& parameters) {
  using E = Entry<kFunction>;
  E::parameters = &parameters;
  auto call = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&E::call));
  E::method = {name, call, METH_FASTCALL | METH_KEYWORDS, nullptr};
  m.attr(name) =
      nanobind::steal(PyCFunction_NewEx(&E::method, nullptr, nullptr));
}

} // namespace mlx_norms
