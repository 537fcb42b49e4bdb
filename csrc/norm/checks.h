// Copyright © 2026 mlx_norms contributors

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "csrc/norm/spec.h"

namespace mlx_norms {

// Throws std::invalid_argument if x has no axes, if a dtype is not supported,
// or if the other arrays do not fit x, whose `heads` may have parameters each.
// `prefix` is before the names of weight and bias among the op's arguments.
void check_inputs(
    const char* op,
    const NormInputs& in,
    bool heads = false,
    std::string_view prefix = {});

// The spec of a norm of these inputs, with late rounding. Throws
// std::invalid_argument if eps or weight_offset is not allowed.
NormSpec spec_of(
    const char* op,
    bool center,
    const NormInputs& in,
    float eps,
    float weight_offset,
    std::string_view prefix = {});

// "early" or "late"; none: early, or late if there is an offset, as Gemma
// stores its weight less one and computes in float32 to the end.
Rounding parse_rounding(
    const char* op,
    const std::optional<std::string>& rounding,
    float weight_offset);

} // namespace mlx_norms
