// Copyright © 2026 mlx_norms contributors
//
// The launches of the primitives. Outputs have been allocated.

#pragma once

#include "csrc/gpu/launch_plan.h"
#include "csrc/group_norm/geometry.h"
#include "csrc/group_norm/spec.h"

namespace mlx_norms {

// How a norm of x takes a single launch; none if it takes several.
std::optional<HeldGeometry>
held_geometry(const GroupNormSpec& spec, const mx::array& x, mx::Stream stream);

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
