// Copyright © 2026 mlx_norms contributors
//
// The Metal kernels were proven on a simulator of the GPU, which knows nothing
// of its compiler. So each specialisation (op, dtypes, flags, row length) is
// run on a few rows that adjoin, when it is first asked for, and compared with
// MLX's ops; and once more in the buffers of its inputs. One that disagrees, or
// makes the GPU fault, is not used; a warning says what to report.
// MLX_NORMS_SELF_CHECK=0 turns this off.

#pragma once

#include "csrc/linear/primitive.h"

namespace mlx_norms {

// Whether the kernel for these inputs, of which only dtypes and row length
// count, can be used.
bool agrees(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

bool agrees(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream);

// Here the numbers of rows and outputs count, too.
bool agrees(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream);

// Whether products of this dtype can be those of gemv, or of the blocked
// kernel.
bool agrees(mx::Dtype dtype, bool gemv, mx::Stream stream);

} // namespace mlx_norms
