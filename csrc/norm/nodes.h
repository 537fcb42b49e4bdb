// Copyright © 2026 mlx_norms contributors
//
// Nodes of the primitives, or MLX's ops if the kernel failed its self-check on
// the stream's device.

#pragma once

#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Whether there is a kernel for these inputs that can be trusted.
bool has_kernel(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

// Makes each output a sibling of the others, as array::make_arrays does.
void make_siblings(Arrays& outputs);

// {normalized, [sum]} of each tensor, by a kernel.
Arrays norm_node(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// The same, by a kernel that can be trusted or else by MLX's ops. The inputs
// have been checked.
Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// {[input], [gate], [weight], [bias]} in `dtypes`, by a kernel.
Arrays norm_vjp_node(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

// The same, by a kernel that can be trusted or else by MLX's ops.
Arrays make_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

// The same by name: those that the spec wants, the input's in the dtype of s.
struct NormGradients {
  OptionalArray input, gate, weight, bias;
};
struct ParameterDtypes {
  mx::Dtype gate = mx::float32, weight = mx::float32, bias = mx::float32;
};
NormGradients norm_gradients(
    const NormVJPSpec& spec,
    const NormVJPInputs& in,
    const ParameterDtypes& dtypes,
    mx::Stream stream);

} // namespace mlx_norms
