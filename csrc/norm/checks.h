// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// An op's names for its parameters, for error messages.
struct ParameterNames {
  const char* weight = "weight";
  const char* bias = "bias";
};

// Throws std::invalid_argument if x has no axes, if a dtype is not supported,
// or if the other arrays do not fit x.
void check_inputs(
    const char* op,
    const NormInputs& in,
    const ParameterNames& names = {});

// The spec of a norm of these inputs, with late rounding. Throws
// std::invalid_argument if eps or weight_offset is not allowed.
NormSpec spec_of(
    const char* op,
    bool center,
    const NormInputs& in,
    float eps,
    float weight_offset,
    const ParameterNames& names = {});

} // namespace mlx_norms
