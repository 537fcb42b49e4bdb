// Copyright © 2026 mlx_norms contributors
//
// A norm of groups of channels, which are joined again before a weight of all
// channels or a gate, as Mamba-2 and linear attention have it.

#pragma once

#include "csrc/patching/norm_call.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// Makes a weight and a gate after the operation that joins the last two axes of
// the norm's result `y` part of the norm, each split as x is. Returns the
// operation that joins them, to be the last one: in the place of the last that
// was taken. Nullopt: there is nothing to take.
std::optional<Rewrite> take_after_join(
    const RewrittenGraph& graph,
    NormCall& call,
    const array& y,
    std::vector<Taken>& taken);

} // namespace mlx_norms
