// Copyright © 2026 mlx_norms contributors

#pragma once

#include <optional>

#include "csrc/norm/channels/channel_norm.h"
#include "csrc/patching/outcome.h"
#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// Plans that a group norm of this package, or one over another axis than the
// last, computes what stands after it: an activation and, of a group norm,
// parameters of its channels before that.
void plan_channels(RewrittenGraph& graph, const array& normalized);

// Likewise for a norm over another axis that is written in operations, of this
// kind, with which the op replaces them.
void plan_channel_norm(
    RewrittenGraph& graph,
    const array& normalized,
    ChannelNorm op,
    Arrays inputs,
    mx::Stream stream,
    std::optional<Taken> written);

} // namespace mlx_norms
