// Copyright © 2026 mlx_norms contributors
//
// The outputs of a primitive during its evaluation.

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Every output of a primitive holds a copy of its inputs, which would keep them
// from being donated. The vector passed to eval is in use and left alone.
void release_inputs(const Arrays& inputs, Arrays& outputs);

// Gives `out` the buffer of the first candidate that can be donated, for
// kernels that store an element only after its last read. Returns false if
// there is none.
bool take_buffer(array& out, std::initializer_list<const array*> from);

} // namespace mlx_norms
