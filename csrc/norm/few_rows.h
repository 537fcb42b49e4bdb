// Copyright © 2026 mlx_norms contributors
//
// The samples of a norm's self-check: two heads of few rows, whose parameters
// have one row, one for each head or one for each pair of rows.

#pragma once

#include <algorithm>

#include "csrc/common/self_check.h"
#include "csrc/norm/operands.h"

namespace mlx_norms {

// Whether it has not one row for each of x's.
inline bool is_parameter(Operand operand) {
  return kOperandTraits[operand].kind != OperandKind::Rows && operand != kGate;
}

// 1: of all rows, 2: of heads, 3: of other groups of rows.
inline int kind_of_parameter(const array& parameter) {
  return std::clamp<int>(parameter.ndim(), 1, 3);
}

// Arrays like these inputs, which are these operands of one tensor.
inline Arrays few_rows(
    const Arrays& inputs,
    Operands operands,
    int rows,
    bool large,
    mx::Stream s,
    int seed = 0) {
  constexpr int kHeads = 2;
  Arrays few;
  int length = inputs[0].shape(-1);
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    bool parameter = is_parameter(operands.at(i));
    int kind = parameter ? kind_of_parameter(inputs[i]) : 0;
    auto shape = kind == 0 ? mx::Shape{rows, kHeads, length}
        : kind == 1        ? mx::Shape{length}
        : kind == 2        ? mx::Shape{kHeads, length}
                           : mx::Shape{rows, 1, length};
    few.push_back(
        self_check::values(
            shape,
            inputs[i].dtype(),
            17 * (seed + i) + 1,
            large && !parameter,
            s));
  }
  return few;
}

// Appends what kernels depend on: the row length and the kind of each input.
inline void append_layouts(
    const Arrays& inputs,
    Operands operands,
    std::vector<int64_t>& numbers) {
  numbers.push_back(inputs[0].shape(-1));
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    bool parameter = is_parameter(operands.at(i));
    numbers.push_back(parameter ? kind_of_parameter(inputs[i]) : 0);
  }
}

} // namespace mlx_norms
