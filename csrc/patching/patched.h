// Copyright © 2026 mlx_norms contributors
//
// What mx.fast's norms become in a patched model: a fused node, a norm of ours,
// or mx.fast's own if no kernel supports the arguments.

#pragma once

#include "csrc/common/types.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/written_norm.h"
#include "mlx/utils.h"

namespace mlx_norms {

// Whether to fuse a pending sum.
enum class Fusion { Now, ByGraphPass, Never };

struct PatchedNorm {
  mx::array normalized;
  Outcome outcome;
};

// Without a weight or a bias, null.
PatchedNorm patched_rms_norm(
    const mx::array& x,
    const mx::array* weight,
    float eps,
    mx::StreamOrDevice stream,
    Fusion fusion);

PatchedNorm patched_layer_norm(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    mx::StreamOrDevice stream,
    Fusion fusion);

// The norm that a model writes in operations, of these arguments; nullopt if
// the model's own code has to compute it.
std::optional<PatchedNorm> patched_written_norm(
    const WrittenNorm& norm,
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    const mx::array* factor,
    Fusion fusion);

} // namespace mlx_norms
