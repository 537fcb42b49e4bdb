// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/row_groups.h"

#include <numeric>

namespace mlx_norms {

namespace {

// Whether the parameter has x's axis i; it need not have axes of size 1.
bool has_axis(const mx::Shape& parameter, const mx::Shape& x, int i) {
  int at = i - static_cast<int>(x.size() - parameter.size());
  return at >= 0 && parameter[at] == x[i];
}

// The first and the last row axis that it has, and whether it has all of them
// between, of those that are larger than 1.
struct OwnAxes {
  int first = -1;
  int last = -1;
  bool all = true;
  bool lacks_before = false;
  bool lacks_after = false;

  OwnAxes(const mx::Shape& parameter, const mx::Shape& x) {
    int row_axes = static_cast<int>(x.size()) - 1;
    for (int i = 0; i < row_axes; ++i) {
      if (x[i] == 1) {
        continue;
      }
      if (has_axis(parameter, x, i)) {
        all &= !lacks_after;
        first = first < 0 ? i : first;
        last = i;
      } else {
        (first < 0 ? lacks_before : lacks_after) = true;
      }
    }
  }
};

} // namespace

std::optional<RowGroups> row_groups(
    const mx::Shape& parameter,
    const mx::Shape& x) {
  OwnAxes own(parameter, x);
  if (own.first < 0) {
    return RowGroups{1, false};
  }
  if (!own.all || (own.lacks_before && own.lacks_after)) {
    return std::nullopt;
  }
  int count = std::accumulate(
      x.begin() + own.first, x.begin() + own.last + 1, 1, std::multiplies());
  return RowGroups{count, own.lacks_after};
}

mx::Shape grouped_shape(const mx::Shape& parameter, const mx::Shape& x) {
  if (row_groups(parameter, x)) {
    return parameter;
  }
  OwnAxes own(parameter, x);
  mx::Shape shape(x.size() - 1, 1);
  shape.push_back(x.back());
  for (int i = 0; i <= own.last; ++i) {
    shape[i] = x[i];
  }
  return shape;
}

} // namespace mlx_norms
