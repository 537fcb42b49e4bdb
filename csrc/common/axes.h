// Copyright © 2026 mlx_norms contributors
//
// Axes of arrays that are iterated together, merged where possible. MLX's
// collapse_contiguous_dims does the same, but libmlx does not export it.

#pragma once

#include <array>
#include <span>

#include "csrc/common/types.h"

namespace mlx_norms {

// Strides of up to six arrays, in elements.
using Steps = std::array<int64_t, 6>;

struct Axis {
  int64_t size;
  Steps strides;
};

// Outermost first.
using Axes = std::vector<Axis>;

// Appends an innermost axis, or extends the last one by it if every array's
// strides allow that. An axis of size 1 is left out.
void append(Axes& axes, const Axis& inner);

// The steps from the first element to that of an index; the last axis varies
// fastest.
Steps offsets_at(const Axes& axes, int64_t index);

// How many indices there are.
int64_t size_of(const Axes& axes);

// The axes of the rows of arrays that broadcast to the first one's shape; at
// least one. A null array is absent.
Axes row_axes(std::span<const array* const> arrays);
inline Axes row_axes(const array& a) {
  const array* only = &a;
  return row_axes({&only, 1});
}

// An evaluated array that broadcasts to this shape, as one of it in the same
// memory.
array broadcast_view(const array& a, const mx::Shape& shape);

// a, row-contiguous by the time a kernel reads it.
array dense(array a, mx::Stream s);

} // namespace mlx_norms
