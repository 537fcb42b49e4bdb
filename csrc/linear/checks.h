// Copyright © 2026 mlx_norms contributors
//
// The checks of norm + projection, which throw as those of
// csrc/common/checks.h.

#pragma once

#include <span>

#include "csrc/linear/projection.h"

namespace mlx_norms {

// How a weight is stored: as an array [N, length], or as the three arrays of
// MLX's affine quantization, whose bits and group size follow from their
// shapes.
Projection check_weight(
    const char* op,
    const std::string& argument,
    std::span<const array> weight,
    int length);

// [N], with the weight's N.
void check_projection_bias(
    const char* op,
    const std::string& argument,
    const array& bias,
    const array& weight);

// A residual that is added to a product of this shape.
void check_added(
    const char* op,
    const array& residual,
    const mx::Shape& product);

// Two weights with the same N.
void check_gated(const char* op, const Arrays& weights);

// "weights[1]", or "weights" if there is only one.
std::string nth(const char* argument, size_t i, size_t n);

} // namespace mlx_norms
