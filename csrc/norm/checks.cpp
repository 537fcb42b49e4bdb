// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/checks.h"

#include "csrc/common/checks.h"

namespace mlx_norms {

void check_inputs(
    const char* op,
    const NormInputs& in,
    bool heads,
    std::string_view prefix) {
  const auto& x = in.x();
  check_rows(op, "x", x);
  for (auto operand : in.present().without({kX})) {
    const auto& [name, kind] = kOperandTraits[operand];
    if (kind == OperandKind::Vector) {
      std::string prefixed; // made for a prefix alone: each call checks
      auto* argument = name;
      if (!prefix.empty()) {
        prefixed = std::string(prefix) + name;
        argument = prefixed.c_str();
      }
      heads ? check_head_weight(op, argument, *in[operand], "x", x)
            : check_vector(op, argument, *in[operand], x);
    } else if (has_shape_of_x(operand) || operand == kGate) {
      check_same_shape(op, name, *in[operand], x);
    } else {
      check_broadcasts(op, name, *in[operand], x);
    }
  }
}

NormSpec spec_of(
    const char* op,
    bool center,
    const NormInputs& in,
    float eps,
    float weight_offset,
    std::string_view prefix) {
  if (!(eps >= 0)) {
    refuse(op, "eps must not be negative but is " + text(eps) + ".");
  }
  if (weight_offset != 0.0f && !in[kWeight]) {
    refuse(
        op,
        "weight_offset is " + text(weight_offset) + " but there is no " +
            std::string(prefix) + "weight to add it to.");
  }
  NormSpec spec;
  spec.operands = in.present();
  spec.center = center;
  spec.rounding = Rounding::Late;
  spec.weight_offset = weight_offset;
  spec.eps = eps;
  return spec;
}

Rounding parse_rounding(
    const char* op,
    const std::optional<std::string>& rounding,
    float weight_offset) {
  if (!rounding) {
    return weight_offset == 0.0f ? Rounding::Early : Rounding::Late;
  }
  if (*rounding == "early") {
    return Rounding::Early;
  }
  if (*rounding == "late") {
    return Rounding::Late;
  }
  refuse(
      op,
      "rounding must be \"early\" or \"late\" but is \"" + *rounding + "\".");
}

} // namespace mlx_norms
