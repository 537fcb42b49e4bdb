// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms::cpu {

// Gives `out` one of these buffers (see take_buffer), or else new memory.
void allocate(array& out, std::initializer_list<const array*> from = {});

} // namespace mlx_norms::cpu
