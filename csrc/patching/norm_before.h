// Copyright © 2026 mlx_norms contributors

#pragma once

#include <functional>

#include "csrc/patching/norm_call.h"
#include "csrc/patching/rewritten_graph.h"

namespace mlx_norms {

// The norm that an array is, with what has been made part of it so far.
using CallOf = std::function<std::optional<NormCall>(const array&)>;

// Plans norm_add_norm in place of a norm of residual + norm(x), if it is one.
// Returns the inner norm, which becomes part of it.
OptionalArray take_norm_before(
    const RewrittenGraph& graph,
    const CallOf& call_of,
    const NormCall& call,
    Rewrite& rewrite);

} // namespace mlx_norms
