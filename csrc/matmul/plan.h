// Copyright © 2026 mlx_norms contributors
//
// The launches of C = A B by kernels/matmul. A and B are of one dtype, which is
// C's, and of any strides; C has its memory.

#pragma once

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

constexpr int kGemvRows = 8; // at most

LaunchPlan plan_blocked(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream);

// At most kGemvRows rows of A, or columns of B.
LaunchPlan plan_gemv(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream);

// Has gemv multiply by its tiles where there are no matrix units, too, as it
// does where there are. For tests.
void set_tiles_anywhere(bool anywhere);

// Whichever reads less.
LaunchPlan plan_matmul(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream);

} // namespace mlx_norms
