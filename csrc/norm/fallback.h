// Copyright © 2026 mlx_norms contributors
//
// The norms in MLX's ops: the fallback that kernels are checked against and
// replaced by, derivatives of the gradients, and parts for transforms that
// split an op.

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// The sum, of a norm that has one, without a clamp.
array sum_of(const NormSpec& spec, const NormInputs& in, mx::Stream stream);

// One normalized tensor: {normalized, [sum]}.
Arrays fallback_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream);

// The same of a node's inputs.
Arrays fallback_of_inputs(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

// The gradients of one tensor, in float32.
Gradients fallback_gradients(
    const NormSpec& spec,
    const NormInputs& in,
    Operands wanted,
    mx::Stream stream);

// The weight in float32 with its offset.
array shifted_weight(
    const NormSpec& spec,
    const array& weight,
    mx::Stream stream);

// 1 + scale in float32.
array scale_factor(const array& scale, mx::Stream stream);

// Whether the product of an array of this dtype and another has it, too.
bool product_keeps(mx::Dtype dtype, const array& factor);

// Applies the weight and the bias, if there are any, in float32.
array apply_parameters(
    const NormSpec& spec,
    const array& normalized,
    const NormInputs& in,
    mx::Stream stream);

// The result in `dtype`: the weight, the bias and the modulation applied.
array finish(
    const NormSpec& spec,
    mx::Dtype dtype,
    const array& normalized,
    const NormInputs& in,
    mx::Stream stream);

// The gradient of a bias: the sum of its cotangents.
array sum_of_bias(const array& a, const array* weight, mx::Stream stream);

// This member's part of rows whose last axis is split over those of a group. No
// residual, no bias.
array sharded_rms_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    const mx::distributed::Group& group,
    mx::Stream stream);

// a with zeros where a clamped float16 sum s is saturated.
array zero_where_saturated(const array& a, const array& s, mx::Stream stream);

} // namespace mlx_norms
