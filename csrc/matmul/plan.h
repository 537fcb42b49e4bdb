// Copyright © 2026 mlx_norms contributors
//
// The launches of C = A B by kernels/matmul. A, B and C have one dtype, A and B
// any strides; C has been allocated.

#pragma once

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

constexpr int kGemvRows = 8; // at most

// The tiles of the blocked kernel.
int blocked_tile(int64_t rows, int64_t columns);
int blocked_depth(int tile);

LaunchPlan plan_blocked(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream);

// Plans a product of at most kGemvRows rows of A, or columns of B.
LaunchPlan plan_gemv(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream);

// Plans it by the kernel that reads less.
LaunchPlan plan_matmul(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream);

} // namespace mlx_norms
