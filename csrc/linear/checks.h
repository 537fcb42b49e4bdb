// Copyright © 2026 mlx_norms contributors
//
// What norm + projection refuses, as checks.h has it.

#pragma once

#include "csrc/linear/primitive.h"

namespace mlx_norms {

// How a weight is stored: an array [N, length], or the three of MLX's affine
// form of one, whose bits and group size follow from their shapes.
Projection check_weight(
    const char* op,
    const std::string& argument,
    const Arrays& weight,
    int length);

// [N], with N that of the weight.
void check_projection_bias(
    const char* op,
    const std::string& argument,
    const array& bias,
    const array& weight);

// Two weights of one N.
void check_gated(const char* op, const Arrays& weights);

// "weights[1]", or "weights" where there is one.
std::string nth(const char* argument, size_t i, size_t n);

} // namespace mlx_norms
