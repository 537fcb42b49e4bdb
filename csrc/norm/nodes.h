// Copyright © 2026 mlx_norms contributors
//
// Nodes of the primitives; or MLX's ops, where the stream's device has a kernel
// that failed its self-check.

#pragma once

#include "csrc/norm/primitive.h"

namespace mlx_norms {

// Whether a kernel that can be trusted computes the node of these inputs.
bool has_kernel(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

// As array::make_arrays: each output has the others as siblings.
void make_siblings(Arrays& outputs);

// {normalized, [sum]} of one tensor, or of each of several: by a kernel ...
Arrays norm_node(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// ... where there is one, else by MLX's ops; of inputs that have been checked.
Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// {[input], [weight], [bias]} in `dtypes`: by a kernel ...
Arrays norm_vjp_node(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

// ... where there is one that can be trusted, else by MLX's ops.
Arrays make_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

} // namespace mlx_norms
