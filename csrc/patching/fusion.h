// Copyright © 2026 mlx_norms contributors
//
// A pending sum is computed by the norm that takes it: one node where there
// would be two.

#pragma once

#include "csrc/patching/outcome.h"
#include "csrc/patching/pending.h"

namespace mlx_norms {

// A norm that computes the sum it takes.
struct FusedNorm {
  std::shared_ptr<Norm> node;
  Arrays inputs;
};

// What a norm of `sum` becomes if the sum is fusible and has a kernel; or
// nullopt, and why not.
std::pair<std::optional<FusedNorm>, Outcome> fused_norm(
    NormSpec spec,
    mx::Dtype dtype,
    const array& sum,
    const Arrays& parameters,
    mx::Stream stream,
    const InputsOf& inputs_of);

// The norm's output. The descriptor of `sum` becomes the node's second one, so
// that all who hold the sum have the fused one.
array fuse_in_place(FusedNorm norm, array sum);

} // namespace mlx_norms
