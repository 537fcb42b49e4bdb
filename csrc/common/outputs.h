// Copyright © 2026 mlx_norms contributors
//
// The memory of a primitive's outputs.

#pragma once

#include "mlx/array.h"
#include "mlx/stream.h"

namespace mlx_norms {

// Every output of a primitive holds a copy of its inputs, which would keep them
// from being donated. The vector passed to eval is left alone: it is in use.
void release_inputs(
    const std::vector<mlx::core::array>& inputs,
    std::vector<mlx::core::array>& outputs);

// Gives `out` new memory, where the stream's device has it at hand. Defined by
// each backend.
void allocate_new(mlx::core::array& out, mlx::core::Stream stream);

// Gives `out` the buffer of the first candidate that can be donated, or else
// new memory. For kernels that write an element after the last read of its
// place.
void allocate(
    mlx::core::array& out,
    mlx::core::Stream stream,
    std::initializer_list<const mlx::core::array*> from);

} // namespace mlx_norms
