// Copyright © 2026 mlx_norms contributors
//
// Nodes of the primitives, or MLX's ops if the kernel failed its self-check on
// the stream's device.

#pragma once

#include "csrc/norm/channels/checks.h"
#include "csrc/norm/channels/primitive.h"

namespace mlx_norms {

// The inputs have been checked.
mx::array make_channel_norm(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// {[input], [weight], [bias]} in `dtypes`.
Arrays make_channel_norm_vjp(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

// The same, by a kernel.
mx::array channel_norm_node(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);
Arrays channel_norm_vjp_node(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

// The same, in MLX's ops: the norm of rows, of which the channels are moved to
// the end.
mx::array fallback_channel_norm(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);
Arrays fallback_channel_norm_vjp(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream);

} // namespace mlx_norms
