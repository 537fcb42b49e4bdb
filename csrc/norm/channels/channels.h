// Copyright © 2026 mlx_norms contributors
//
// What a norm over an axis that is not the last one, such as the channels of
// [B, C, H, W], has of its own. Its inputs are x, [weight] and [bias].

#pragma once

#include "csrc/norm/norm.h"

namespace mlx_norms {

LaunchPlan plan_channels(
    const NormSpec& spec,
    const NormInputs& in,
    const array& out,
    mx::Stream s);
LaunchPlan plan_channels_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream s);

void eval_channels(
    const NormSpec& spec,
    const NormInputs& in,
    array& out,
    mx::Stream s);
void eval_channels_vjp(
    const NormVJP& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream s);

// What a self-check asks for: what kernels depend on besides options, and
// arrays like these inputs, of few samples, with as many places as have the
// same vectors and threads, but few.
void append_columns(
    const NormSpec& spec,
    const array& x,
    std::vector<int64_t>& numbers);
Arrays few_places(
    const NormSpec& spec,
    const Arrays& inputs,
    int samples,
    mx::Stream s);

} // namespace mlx_norms
