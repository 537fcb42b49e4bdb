// Copyright © 2026 mlx_norms contributors
//
// Axes of arrays that are walked together, with those merged that can be, as
// MLX's collapse_contiguous_dims does, which libmlx does not export.

#pragma once

#include <array>

#include "csrc/common/types.h"

namespace mlx_norms {

// Of up to three arrays, in elements.
using Steps = std::array<int64_t, 3>;

struct Axis {
  int64_t size;
  Steps strides;
};

// Outermost first.
using Axes = std::vector<Axis>;

// Adds an axis within the others, or makes the last one longer by it where
// every array's strides allow that. An axis of one index is left out.
void append(Axes& axes, const Axis& inner);

// How far from the first element is that of an index, the last axis fastest.
Steps offsets_at(const Axes& axes, int64_t index);

// How many indices there are.
int64_t size_of(const Axes& axes);

// Those of the rows of arrays of one shape; one at least.
Axes row_axes(std::initializer_list<const array*> arrays);

} // namespace mlx_norms
