// Copyright © 2026 mlx_norms contributors

#include "csrc/python/quick_call.h"

#include <algorithm>

#include "csrc/norm/ops.h"

namespace nb = nanobind;

namespace mlx_norms {

namespace {

constexpr QuickCall kQuickCalls[] = {
    {"rms_norm",
     2,
     [](const auto& a, float eps) {
       return plain_norm(/* center= */ false, *a[0], a[1], nullptr, eps);
     }},
    {"layer_norm",
     3,
     [](const auto& a, float eps) {
       return plain_norm(/* center= */ true, *a[0], a[1], a[2], eps);
     }},
    {"patched_rms_norm",
     2,
     [](const auto& a, float eps) {
       return std::optional(patched_rms_norm(*a[0], a[1], eps, {}));
     }},
    {"patched_layer_norm",
     3,
     [](const auto& a, float eps) {
       return std::optional(patched_layer_norm(*a[0], a[1], a[2], eps, {}));
     }},
};

} // namespace

std::optional<const mx::array*> as_array(PyObject* given) {
  static auto* type =
      reinterpret_cast<PyTypeObject*>(nb::type<mx::array>().ptr());
  if (given == Py_None) {
    return nullptr;
  }
  if (Py_TYPE(given) != type || !nb::inst_ready(given)) {
    return std::nullopt;
  }
  return nb::inst_ptr<mx::array>(given);
}

const QuickCall* find_quick_call(std::string_view function) {
  auto* found = std::ranges::find_if(
      kQuickCalls, [&](const auto& each) { return each.name == function; });
  return found == std::end(kQuickCalls) ? nullptr : found;
}

std::optional<PyObject*> call_at_once(
    const QuickCall& quick,
    PyObject* const* arguments,
    size_t positional) {
  if (positional != quick.n_arrays + 1 ||
      !PyFloat_CheckExact(arguments[quick.n_arrays])) {
    return std::nullopt;
  }
  QuickCall::Arrays arrays{};
  for (size_t i = 0; i < quick.n_arrays; ++i) {
    auto array = as_array(arguments[i]);
    if (!array || (i == 0 && !*array)) {
      return std::nullopt;
    }
    arrays[i] = *array;
  }
  float eps = PyFloat_AS_DOUBLE(arguments[quick.n_arrays]);
  auto y = quick.call(arrays, eps);
  if (!y) {
    return std::nullopt;
  }
  return nb::cast(std::move(*y)).release().ptr();
}

} // namespace mlx_norms
