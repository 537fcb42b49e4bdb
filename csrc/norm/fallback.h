// Copyright © 2026 mlx_norms contributors
//
// The norms in MLX's ops: the fallback that kernels are checked against and
// replaced by, derivatives of the gradients, and parts for transforms that
// split an op.

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// The sum, of a norm that has one, without a clamp.
mx::array sum_of(const NormSpec& spec, const NormInputs& in, mx::Stream stream);

// One normalized tensor: {normalized, [sum]}.
std::vector<mx::array> fallback_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream);

// The same for each of several tensors.
std::vector<mx::array> fallback_norms(
    const NormSpec& spec,
    mx::Dtype dtype,
    const std::vector<mx::array>& inputs,
    mx::Stream stream);

// The gradients of one tensor: {[input], [weight], [bias]} in `dtypes`.
std::vector<mx::array> fallback_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const NormVJPInputs& in,
    mx::Stream stream);

// The weight in float32 with its offset.
mx::array shifted_weight(
    const NormSpec& spec,
    const mx::array& weight,
    mx::Stream stream);

// Applies the weight and the bias, if there are any, in float32.
mx::array apply_parameters(
    const NormSpec& spec,
    const mx::array& normalized,
    const NormInputs& in,
    mx::Stream stream);

// The result in `dtype`: the weight, the bias and the modulation applied.
mx::array finish(
    const NormSpec& spec,
    mx::Dtype dtype,
    const mx::array& normalized,
    const NormInputs& in,
    mx::Stream stream);

// The gradient of a bias: the sum of its cotangents.
mx::array
sum_of_bias(const mx::array& a, const mx::array* weight, mx::Stream stream);

// a with zeros where a clamped float16 sum s is saturated.
mx::array
zero_where_saturated(const mx::array& a, const mx::array& s, mx::Stream stream);

} // namespace mlx_norms
