// Copyright © 2026 mlx_norms contributors
//
// The outputs of a primitive that is evaluated.

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Every output of a primitive holds a copy of its inputs, which would keep them
// from being donated. The vector passed to eval is left alone: it is in use.
void release_inputs(const Arrays& inputs, Arrays& outputs);

// Gives `out` the buffer of the first candidate that can be donated, for
// kernels that write an element after the last read of its place. False: none
// can be.
bool take_buffer(array& out, std::initializer_list<const array*> from);

} // namespace mlx_norms
