// Copyright © 2026 mlx_norms contributors
//
// The launches of the primitives. Outputs have been allocated.

#pragma once

#include "csrc/gpu/launch_plan.h"
#include "csrc/norm/spec.h"

namespace mlx_norms {

LaunchPlan plan_channel_norm(
    const NormSpec& spec,
    int axis,
    const std::vector<mx::array>& inputs,
    const mx::array& out,
    mx::Stream stream);

LaunchPlan plan_channel_norm_vjp(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs,
    mx::Stream stream);

} // namespace mlx_norms
