// Copyright © 2026 mlx_norms contributors
//
// A pending sum is computed by the norm that takes it: one node where there
// would be two.

#pragma once

#include "csrc/patching/outcome.h"
#include "csrc/patching/pending.h"

namespace mlx_norms {

// Outcome::Fused, or why the node of this sum cannot become the norm's: what
// takes `sum` would come to depend on the norm's parameters as well.
Outcome fusible(
    const array& sum,
    const Arrays& parameters,
    mx::Stream stream,
    const InputsOf& inputs_of);

// The norm of a fusible sum, of spec.residual and with the sum's operands and
// the parameters as inputs. The descriptor of `sum` becomes the node's second
// output, so that all who hold the sum have the fused one.
array fuse_in_place(
    const NormSpec& spec,
    mx::Dtype dtype,
    array sum,
    Arrays inputs,
    mx::Stream stream);

} // namespace mlx_norms
