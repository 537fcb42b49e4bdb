// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/gpu/launch_plan.h"
#include "csrc/ladders/rung.h"

namespace mlx_norms {

// The launches of C = A B by a rung of sgemm_rungs(). All are dense float32,
// and C has its memory.
LaunchPlan plan_sgemm(
    const Rung& rung,
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream);

} // namespace mlx_norms
