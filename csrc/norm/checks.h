// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// What an op calls its parameters in errors.
struct ParameterNames {
  const char* weight = "weight";
  const char* bias = "bias";
};

// Throws std::invalid_argument where they are no rows of x, or do not fit them.
void check_inputs(
    const char* op,
    const NormInputs& in,
    const ParameterNames& names = {});

// The spec of a norm of these, with late rounding. Throws
// std::invalid_argument where a number is not allowed.
NormSpec spec_of(
    const char* op,
    bool center,
    const NormInputs& in,
    float eps,
    float weight_offset,
    const ParameterNames& names = {});

} // namespace mlx_norms
