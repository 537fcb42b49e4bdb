// Copyright © 2026 mlx_norms contributors
//
// What mx.fast's norms become in a patched model: a fused node, a norm of ours,
// or mx.fast's own if no kernel supports the arguments.

#pragma once

#include "csrc/common/types.h"
#include "mlx/utils.h"

namespace mlx_norms {

// Whether to fuse a pending sum.
enum class Fusion { Now, ByGraphPass, Never };

// Without a weight or a bias, null.
mx::array patched_rms_norm(
    const mx::array& x,
    const mx::array* weight,
    float eps,
    mx::StreamOrDevice stream,
    Fusion fusion);

mx::array patched_layer_norm(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    mx::StreamOrDevice stream,
    Fusion fusion);

} // namespace mlx_norms
