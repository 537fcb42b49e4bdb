// Copyright © 2026 mlx_norms contributors
//
// Operations beside a norm of this package that it has options for, and that it
// can compute, too.

#pragma once

#include "csrc/patching/followers.h"
#include "csrc/patching/norm_call.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// Takes what a patched call's operands are computed from: the 16 bits of an x
// that is cast to float32, and w of a weight 1 + w; and none that does nothing.
// Returns whether any changed, and whether a weight did.
struct TakenOperands {
  bool any = false;
  bool offset = false;
};
TakenOperands take_operands(NormCall& call);

// Makes the operation that takes the norm's result, old[0], part of the norm,
// if it can be, and old[0] its result. old[1] is the sum of a norm that
// computes one.
std::optional<Taken>
take_follower(const RewrittenGraph& graph, NormCall& call, Arrays& old);

// The gate in a product `next` with the norm's result `y`, if the norm may have
// one.
std::optional<Activated> gate_beside(
    const RewrittenGraph& graph,
    const NormCall& call,
    const array& y,
    const array& next);

// Likewise x * act(z), which is normalized.
bool take_gate_first(const RewrittenGraph& graph, NormCall& call);

// The activation of the norm's result `y`, of its dtype, to which all that
// takes it belongs; null: there is none.
const array* activation_after(
    const RewrittenGraph& graph,
    const array& y,
    mx::Stream stream,
    Activation& activation);

} // namespace mlx_norms
