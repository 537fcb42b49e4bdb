// Copyright © 2026 mlx_norms contributors
//
// The launches of the norm primitives. Outputs have been allocated.

#pragma once

#include <optional>

#include "csrc/gpu/launch_plan.h"
#include "csrc/norm/spec.h"

namespace mlx_norms {

// One normalized tensor, or two of one row length and dtype.
LaunchPlan plan_norm(
    const NormSpec& spec,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs,
    mx::Stream stream);

// Whether s and its cotangent are read after the input's gradient is stored,
// which then cannot reuse their memory.
bool reads_rows_again(
    const NormVJPSpec& spec,
    const mx::array& s,
    mx::Stream stream);

LaunchPlan plan_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs,
    mx::Stream stream);

// The launch that adds up the rows of partial sums to parameters' gradients.
Launch sum_partials(
    int heads,
    int count, // rows of partial sums per head
    int length,
    const std::optional<mx::array>& weight_partials,
    const mx::array* weight_gradient,
    const std::optional<mx::array>& bias_partials,
    const mx::array* bias_gradient);

} // namespace mlx_norms
