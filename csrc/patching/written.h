// Copyright © 2026 mlx_norms contributors
//
// Norms that are written in MLX's operations amid other code.

#pragma once

#include "csrc/patching/graph.h"
#include "csrc/patching/norm_call.h"
#include "csrc/patching/report.h"

namespace mlx_norms {

struct WrittenNorm {
  array output;
  NormCall call;
  Counted kind;
};

// Whether a root or power may be that of a norm, by its own operands.
bool may_be_root(const array& root);

// The largest norm that takes this root or power, and of which nothing else
// takes a part.
std::optional<WrittenNorm> written_norm(const array& root, const Graph& graph);

} // namespace mlx_norms
