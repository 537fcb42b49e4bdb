// Copyright © 2026 mlx_norms contributors
//
// Parameters that broadcast to the rows of x.

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// How rows share those of a parameter: row i has row i / (rows / count) of it
// if the rows of a group adjoin, else row i % count.
struct RowGroups {
  int count;
  bool adjoin;
};

// None if it is neither: if the parameter has an axis of 1 between others, or
// at both ends.
std::optional<RowGroups> row_groups(
    const mx::Shape& parameter,
    const mx::Shape& x);

// The smallest shape with groups that the parameter broadcasts to.
mx::Shape grouped_shape(const mx::Shape& parameter, const mx::Shape& x);

} // namespace mlx_norms
