// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/checks.h"

#include "csrc/common/checks.h"

namespace mlx_norms {

void check_inputs(
    const char* op,
    const NormInputs& in,
    const ParameterNames& names) {
  const auto& [x, residual, weight, bias, scale, shift, factor, gate] = in;
  check_rows(op, "x", x);
  if (residual) {
    check_same_shape(op, "residual", *residual, x);
  }
  if (weight) {
    check_vector(op, names.weight, *weight, x);
  }
  if (bias) {
    check_vector(op, names.bias, *bias, x);
  }
  if (scale) {
    check_broadcasts(op, "scale", *scale, x);
  }
  if (shift) {
    check_broadcasts(op, "shift", *shift, x);
  }
  if (factor) {
    check_broadcasts(op, "factor", *factor, x);
  }
  if (gate) {
    check_same_shape(op, "gate", *gate, x);
  }
}

NormSpec spec_of(
    const char* op,
    bool center,
    const NormInputs& in,
    float eps,
    float weight_offset,
    const ParameterNames& names) {
  if (!(eps >= 0)) {
    refuse(op, "eps must not be negative but is " + text(eps) + ".");
  }
  if (weight_offset != 0 && !in.weight) {
    refuse(
        op,
        "weight_offset is " + text(weight_offset) + " but there is no " +
            names.weight + " to add it to.");
  }
  return NormSpec{
      .center = center,
      .residual = in.residual != nullptr,
      .weight = in.weight != nullptr,
      .bias = in.bias != nullptr,
      .scale = in.scale != nullptr,
      .shift = in.shift != nullptr,
      .factor = in.factor != nullptr,
      .gate = in.gate != nullptr,
      .rounding = Rounding::Late,
      .weight_offset = weight_offset,
      .eps = eps};
}

} // namespace mlx_norms
