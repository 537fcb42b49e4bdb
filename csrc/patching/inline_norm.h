// Copyright © 2026 mlx_norms contributors
//
// A norm that is written in MLX's operations amid other code, found in a graph.

#pragma once

#include "csrc/patching/pending_graph.h"
#include "csrc/patching/written_norm.h"

namespace mlx_norms {

struct InlineNorm {
  array output;
  WrittenNorm norm;
  array x;
  Arrays parameters;
  mx::Stream stream;
};

// Whether a root or power may be that of a norm, by its own operands.
bool may_be_root(const array& power);

// The largest norm that takes this root or power, and of which nothing else
// takes a part.
std::optional<InlineNorm> inline_norm(
    const array& power,
    const PendingGraph& graph);

} // namespace mlx_norms
