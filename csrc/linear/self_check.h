// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/linear/primitive.h"

namespace mlx_norms {

// Whether the kernel for these inputs can be used (see common/self_check.h). Of
// the inputs only dtypes, row length and the numbers of rows and outputs
// matter.
bool agrees(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream);

} // namespace mlx_norms
