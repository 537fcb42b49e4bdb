// Copyright © 2026 mlx_norms contributors
//
// The outputs of a primitive.

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// Every output holds a copy of the inputs, which would keep them from being
// donated in eval. The vector passed to eval is in use and left alone.
void release_inputs(const Arrays& inputs, Arrays& outputs);

// Makes each output a sibling of the others, as array::make_arrays does.
void make_siblings(Arrays& outputs);

// Gives `out` the buffer of the first candidate that can be donated, for
// kernels that store an element only after its last read. Returns false if
// there is none.
bool take_buffer(array& out, std::initializer_list<const array*> from);

} // namespace mlx_norms
