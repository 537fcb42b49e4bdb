// Copyright © 2026 mlx_norms contributors
//
// The launches of the primitives. Outputs have been allocated.

#pragma once

#include "csrc/gpu/launch_plan.h"
#include "csrc/group_norm/spec.h"

namespace mlx_norms {

LaunchPlan plan_group_norm(
    const GroupNormSpec& spec,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

LaunchPlan plan_group_norm_vjp(
    const GroupNormVJPSpec& spec,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

} // namespace mlx_norms
