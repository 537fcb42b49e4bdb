// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// The axis counted from the end, or 0 if it is the last one. Throws
// std::invalid_argument if x has no such axis.
int channel_axis(const char* op, const mx::array& x, int axis);

// Throws std::invalid_argument unless weight and bias fit x's channels.
void check_channels(const char* op, int axis, const NormInputs& in);

} // namespace mlx_norms
