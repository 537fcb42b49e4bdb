// Copyright © 2026 mlx_norms contributors
//
// Samples whose groups have few elements, on the CPU: those of several samples,
// or some of one's, at once.

#pragma once

#include "csrc/group_norm/cpu_statistics.h"
#include "csrc/group_norm/spec.h"

namespace mlx_norms::cpu {

// Whether these kernels take less time. It depends on a sample's sizes alone.
bool are_small_groups(const GroupGeometry& of);

// Dispatches what computes the norm, {normalized, mean, rest, variance}, or its
// gradients. The inputs are not empty, and the outputs allocated.
void norm_small_groups(
    const GroupNormSpec& spec,
    const GroupGeometry& of,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream);
void vjp_of_small_groups(
    const GroupNormVJPSpec& spec,
    const GroupGeometry& of,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream);

} // namespace mlx_norms::cpu
