// Copyright © 2026 mlx_norms contributors
//
// A pending sum is computed by the norm that normalizes it: one node instead of
// two.

#pragma once

#include "csrc/patching/outcome.h"
#include "csrc/patching/prologue.h"

namespace mlx_norms {

// A norm that also computes its sum.
struct FusedNorm {
  std::shared_ptr<Node<Norm>> node;
  Arrays inputs;
};

// The fused norm of `sum`, if the sum can be fused and there is a kernel; else
// nullopt and the reason. What its parameters depend on is looked for in `walk`
// nodes.
std::pair<std::optional<FusedNorm>, Outcome> fused_norm(
    NormSpec spec,
    mx::Dtype dtype,
    const array& sum,
    const Arrays& parameters,
    mx::Stream stream,
    const InputsOf& inputs_of,
    const HeldOnce& held_once,
    int walk);

} // namespace mlx_norms
