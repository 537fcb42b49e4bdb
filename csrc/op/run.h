// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/op/op.h"

namespace mlx_norms {

// Whether the op's kernels for dense inputs like these agree with its reference
// on a sample, or there is none (csrc/common/self_check.h): before the op is in
// a graph.
bool passes_self_check(
    const OpPtr& op,
    const Arrays& inputs,
    mx::Stream stream);

// Encodes the op's plan for allocated outputs. Which kernel a layout has on
// Metal is only known now, long after the self-check of dense operands, so it
// is checked when it is first met. If it is refused or wrong, the operands are
// copied, and the kernel that was checked runs.
void run(
    const OpPtr& op,
    const Arrays& inputs,
    Arrays& outputs,
    mx::Stream stream);

} // namespace mlx_norms
