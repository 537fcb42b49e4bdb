// Copyright © 2026 mlx_norms contributors
//
// The launch of a norm and the projections of what it gives.

#pragma once

#include "csrc/gpu/launch_plan.h"
#include "csrc/linear/primitive.h"

namespace mlx_norms {

// Whether the kernel computes it, as far as can be known before the inputs are:
// one dtype but for the norm's parameters, weights of one form, and none that
// is known to lie otherwise than row by row.
bool kernel_takes(const NormLinearSpec& spec, const Arrays& inputs);

// A launch on Metal with more outputs than this differs in its size alone.
constexpr int kManyOutputs = 2048;

// Of any number of rows. Inputs but x and the residual are row-contiguous, and
// outputs have their memory.
LaunchPlan plan_norm_linear(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

} // namespace mlx_norms
