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

// The arguments of mx.fast.rms_norm, and of layer_norm, which has a bias.
struct FastNormArguments {
  const array* x = nullptr;
  const array* weight = nullptr; // or bias: null, none
  const array* bias = nullptr;
  float eps = 1e-5f;
  mx::StreamOrDevice stream;
};

array patched_rms_norm(const FastNormArguments& arguments);
array patched_layer_norm(const FastNormArguments& arguments);

// Whether MLX computes ropes of the stream by its operations, some thirty, and
// patched_rope may have a kernel for them.
bool composes_ropes(mx::Stream stream);

// The rope of [B, H, L, D], as mx.fast.rope; nullopt: MLX has to compute it.
OptionalArray patched_rope(const RopeArguments& arguments);

} // namespace mlx_norms
