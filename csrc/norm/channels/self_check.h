// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/channels/primitive.h"

namespace mlx_norms {

// Whether the kernel for these inputs can be used (see common/self_check.h). Of
// the inputs only dtypes and the sizes of a channel and of all matter.
bool channels_agree(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

bool channels_agree(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream);

} // namespace mlx_norms
