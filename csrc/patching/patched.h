// Copyright © 2026 mlx_norms contributors
//
// What mx.fast's norms and ropes become in a patched model: nodes of ours, or
// MLX's own if no kernel supports the arguments. No pending graph is looked at,
// but for mx.ones in a shapeless trace, and no array changed: what stands
// around is a pass's (pass.h).

#pragma once

#include "csrc/common/types.h"
#include "csrc/rope/ops.h"
#include "mlx/utils.h"

namespace mlx_norms {

// Without a weight or a bias, null.
array patched_rms_norm(
    const array& x,
    const array* weight,
    float eps,
    mx::StreamOrDevice stream);

array patched_layer_norm(
    const array& x,
    const array* weight,
    const array* bias,
    float eps,
    mx::StreamOrDevice stream);

// Whether MLX computes ropes of the stream by its operations, some thirty, and
// patched_rope may have a kernel for them.
bool composes_ropes(mx::Stream stream);

// The rope of x [B, H, L, D]; nullopt: MLX has to compute it.
OptionalArray patched_rope(const array& x, RopeOptions options);

} // namespace mlx_norms
