// Copyright © 2026 mlx_norms contributors
//
// Arrays as the kernels take them: kernels/common/rows.h.

#pragma once

#include <optional>

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// How a kernel finds an array's rows.
struct RowOperand {
  const mx::array* array;        // of the primitive, or the plan's temporary
  int32_t flags;                 // the kernels' FloatType and RowFlags
  std::array<int32_t, 6> layout; // the kernels' RowLayout
};

// The kernels' FloatType.
int32_t float_type(mx::Dtype dtype);

// Whether its vectors are of 16 bytes, as the kernels' can_fetch has it.
bool can_fetch(const RowOperand& rows, int width);

// The number of rows of x. Throws if it is beyond what kernels count to.
int32_t row_count(const mx::array& x);

// a's rows, read in vectors of `width` elements where they are aligned. Where
// a's layout is beyond the kernels', launches that make it dense are added to
// the plan.
RowOperand read_rows(const mx::array& a, int width, LaunchPlan& plan);

// A row-contiguous copy, by launches that are added to the plan.
const mx::array& make_dense(const mx::array& a, LaunchPlan& plan);

// A parameter of shape [D] or [heads, D]: its row is that of x's modulo heads.
RowOperand read_parameter(const mx::array& a, int width, LaunchPlan& plan);

// The flags of a row-contiguous array that is written.
int32_t output_flags(const mx::array& a, int width);

// Binds an operand, if there is one, and its layout. Its flags is a function
// constant in any case.
void bind_rows(
    Launch& launch,
    Input rows,
    Words layout,
    Constant<int32_t> flags,
    const std::optional<RowOperand>& operand);

} // namespace mlx_norms
