// Copyright © 2026 mlx_norms contributors
//
// The samples of a norm's self-check: few rows, and parameters that kernels
// find as those of the call.

#pragma once

#include <algorithm>

#include "csrc/common/axes.h"
#include "csrc/common/self_check.h"
#include "csrc/norm/operands.h"

namespace mlx_norms {

// How kernels find the rows of a dense operand (csrc/gpu/rows.h): as x's, or
// one for all, or by so many axes, of which x's rows have every other one.
constexpr int kAsX = 0, kOneForAll = 1, kByAxes = 2;
constexpr int kMaxAxes = 4; // more are copied, as so many are

inline int way_of(Operand operand, const array& a, const array& x) {
  auto kind = kOperandTraits[operand].kind;
  if (has_shape_of_x(operand)) {
    return kAsX;
  }
  if (a.ndim() == 0 || a.size() <= static_cast<size_t>(a.shape(-1))) {
    return kOneForAll;
  }
  if (kind == OperandKind::Vector && a.ndim() <= 2) {
    return kByAxes; // heads
  }
  Axes axes;
  int64_t stride = a.size();
  int missing = static_cast<int>(x.ndim()) - static_cast<int>(a.ndim());
  for (int i = 0; i + 1 < static_cast<int>(x.ndim()); ++i) {
    bool own = i >= missing && a.shape(i - missing) > 1;
    stride /= own ? x.shape(i) : 1;
    append(axes, {x.shape(i), {own ? stride : 0}});
  }
  return axes.size() == 1 ? kAsX : std::min<int>(axes.size(), kMaxAxes);
}

// The shape of such an operand, for that of x. Heads are x's last axis of rows.
inline mx::Shape shape_of(int way, bool heads, mx::Shape x) {
  int length = x.back();
  if (way == kOneForAll) {
    return {length};
  }
  if (heads && way == kByAxes) {
    return {x[x.size() - 2], length};
  }
  for (int i = 0; way >= kByAxes && i + 1 < static_cast<int>(x.size()); ++i) {
    x[i] = std::min(i, way - 1) % 2 == 0 ? x[i] : 1;
  }
  return x;
}

// Rows with three axes, which layouts may tell apart, or more.
inline mx::Shape shape_of_rows(int way, int length) {
  mx::Shape shape(std::max(way, 3), 2);
  shape.push_back(length);
  return shape;
}

// The ways of one tensor's inputs.
inline std::vector<int> ways_of(const Arrays& inputs, Operands operands) {
  std::vector<int> ways;
  for (const auto& a : inputs) {
    ways.push_back(way_of(operands.at(ways.size()), a, inputs[0]));
  }
  return ways;
}

// Arrays like these inputs, which are these operands of one tensor, for a shape
// of x. The parameters have no large values.
inline Arrays few_rows(
    const Arrays& inputs,
    Operands operands,
    const mx::Shape& x,
    bool large,
    mx::Stream s,
    int seed = 0) {
  Arrays few;
  for (const auto& a : inputs) {
    int i = few.size();
    auto operand = operands.at(i);
    auto kind = kOperandTraits[operand].kind;
    auto shape =
        shape_of(way_of(operand, a, inputs[0]), kind == OperandKind::Vector, x);
    bool has_rows = has_shape_of_x(operand) || operand == kGate;
    few.push_back(
        self_check::values(
            shape, a.dtype(), 17 * (seed + i) + 1, large && has_rows, s));
  }
  return few;
}

// Appends what kernels depend on: the row length, and each input's way.
inline void append_ways(
    const Arrays& inputs,
    Operands operands,
    std::vector<int64_t>& numbers) {
  numbers.push_back(inputs[0].shape(-1));
  auto ways = ways_of(inputs, operands);
  numbers.insert(numbers.end(), ways.begin(), ways.end());
}

} // namespace mlx_norms
