// Copyright © 2026 mlx_norms contributors
//
// mx.fast.rope of a pending norm of heads, in a patched model: one node in the
// place of a norm, a transpose and a rope, or of a layer's q and k of two each.

#pragma once

#include "csrc/rope/ops.h"

namespace mlx_norms {

// Whether patched_rope may compute a rope of x. Nearly free: each rope asks.
bool is_norm_of_heads(const array& x);

// The rope of x, with the options that mx.fast.rope has; nullopt: MLX has to
// compute it. It may become an output of the node of the thread's latest one.
OptionalArray patched_rope(const array& x, RopeOptions options);

} // namespace mlx_norms
