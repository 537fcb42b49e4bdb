// Copyright © 2026 mlx_norms contributors
//
// What nodes are computed from: of two norms, or two ropes, from one source,
// neither needs the other.

#pragma once

#include <cstdint>
#include <vector>

#include "csrc/patching/pending.h"

namespace mlx_norms {

// Whether `a` has a value, or is computed from one alone without a norm or a
// rope, as by a cast.
bool is_given(const array& a, int walk = kWalk);

// The nodes from which a node's first input is computed by one operation after
// another, none of them a norm or a rope, whose other inputs are given; the
// nearest first.
std::vector<std::uintptr_t> sources_of(const array& node);

// Whether two nodes have a source in common. Then neither needs the other.
bool share_source(
    const std::vector<std::uintptr_t>& a,
    const std::vector<std::uintptr_t>& b);

} // namespace mlx_norms
