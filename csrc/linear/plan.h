// Copyright © 2026 mlx_norms contributors
//
// What the launches of a norm and the projections of its output depend on.

#pragma once

#include "csrc/gpu/launch_plan.h"
#include "csrc/linear/spec.h"

namespace mlx_norms {

// Whether the kernel supports it, as far as is known before the inputs are
// evaluated: one dtype except for the norm's parameters, weights stored in one
// form, and none that is known not to be row-contiguous.
bool kernel_takes(const NormLinearSpec& spec, const Arrays& inputs);

// The most rows of a product without a norm, by tiles.
constexpr int kProductRows = 16;

// Sets a threadgroup's SIMD-groups, for benchmarks; 0: as measured.
void set_product_simds(int simds);

// Sets the most rows that one launch takes, for benchmarks; 0: as measured.
void set_product_rows(int rows);

// The rows of a block of the kernel's instance for x.
int rows_of_block(const NormLinearSpec& spec, const array& x);

// Launches on Metal with more outputs than this differ only in size.
constexpr int kManyOutputs = 2048;

// The launch for any number of rows. Inputs other than x and the residual are
// row-contiguous.
LaunchPlan plan_norm_linear(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

// The launch for a product without a norm, by tiles.
LaunchPlan plan_tiles(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    const array& y,
    mx::Stream stream);

} // namespace mlx_norms
