// Copyright © 2026 mlx_norms contributors
//
// What norms are computed from: of two from one source neither needs the other.

#pragma once

#include <cstdint>
#include <vector>

#include "csrc/patching/pending.h"

namespace mlx_norms {

// Whether `a` has a value, or is computed from one alone without a norm, as by
// a cast.
bool is_given(const array& a, int walk = 8);

// The nodes from which a norm's x is computed by one operation after another,
// none of them a norm, whose other inputs are given; the nearest first.
std::vector<std::uintptr_t> sources_of(const array& norm);

// Whether two norms have a source in common.
bool share_source(
    const std::vector<std::uintptr_t>& a,
    const std::vector<std::uintptr_t>& b);

} // namespace mlx_norms
