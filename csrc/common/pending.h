// Copyright © 2026 mlx_norms contributors
//
// What is known about an array without evaluating it.

#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "mlx/ops.h"
#include "mlx/primitives.h"

namespace mlx_norms {

namespace mx = mlx::core;

// Whether the computation of `a` has not been scheduled yet.
inline bool is_pending(const mx::array& a) {
  return a.status() == mx::array::Status::unscheduled && a.has_primitive();
}

inline bool is_pending(const mx::array& a, const char* primitive) {
  return is_pending(a) && std::strcmp(a.primitive().name(), primitive) == 0;
}

// The node of which `a` is an output: several may have one primitive, as those
// that mx.compile has traced once.
inline std::uintptr_t node_id(const mx::array& a) {
  return a.siblings().empty() ? a.id() : a.outputs()[0].id();
}

// The value of a constant that needs no evaluation.
inline std::optional<float> as_number(const mx::array& a) {
  if (a.size() != 1 || a.has_primitive() ||
      a.status() != mx::array::Status::available) {
    return std::nullopt;
  }
  switch (a.dtype()) {
    case mx::float32:
      return *a.data<float>();
    case mx::float16:
      return static_cast<float>(*a.data<mx::float16_t>());
    case mx::bfloat16:
      return static_cast<float>(*a.data<mx::bfloat16_t>());
    default:
      return std::nullopt;
  }
}

// The number that all elements of a pending array are, as of mx.ones.
inline std::optional<float> as_number_throughout(mx::array a) {
  while (is_pending(a, "Full") || is_pending(a, "Broadcast")) {
    a = mx::array(a.inputs()[0]);
  }
  return as_number(a);
}

// Whether this is a trace of shapeless compile, where shapes are not those of
// the results. MLX tells by what it makes of `a`, any array.
inline bool in_shapeless_trace(const mx::array& a) {
  return mx::number_of_elements(a, {}, false).has_primitive();
}

} // namespace mlx_norms
