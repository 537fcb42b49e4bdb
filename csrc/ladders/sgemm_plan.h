// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/ladders/rung.h"
#include "csrc/plan/launch_plan.h"

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
