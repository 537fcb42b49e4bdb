// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms::gpu {

// Gives `out` one of these buffers (see take_buffer), or else new memory of the
// stream's device. Defined by each backend.
void allocate(
    array& out,
    mx::Stream stream,
    std::initializer_list<const array*> from = {});

} // namespace mlx_norms::gpu
