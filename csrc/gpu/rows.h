// Copyright © 2026 mlx_norms contributors
//
// Arrays in the form that kernels expect (kernels/common/rows.h).

#pragma once

#include <optional>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// How a kernel finds an array's rows.
struct RowOperand {
  const mx::array* array; // of the primitive or of the plan
  int32_t flags;          // the kernels' FloatType and RowFlags, but a layout's
  std::optional<Launch::Layout> layout;
};

// The kernels' FloatType.
int32_t float_type(mx::Dtype dtype);

// Whether its vectors have 16 bytes, as in the kernels' can_fetch.
bool can_fetch(const RowOperand& rows, int width);

// The number of rows of x. Throws if kernels cannot count the rows or elements.
int32_t row_count(const mx::array& x);

// a's rows, read in vectors of `width` elements if they are aligned. If a
// layout cannot hold them, launches that make a dense are added to the plan.
RowOperand read_rows(const mx::array& a, int width, LaunchPlan& plan);

// A row-contiguous copy; the launches that make it are added to the plan.
const mx::array& make_dense(const mx::array& a, LaunchPlan& plan);

// A parameter of shape [D] or [heads, D]: row i of x uses its row i % heads.
RowOperand read_parameter(const mx::array& a, int width, LaunchPlan& plan);

// The same of one that may be absent.
std::optional<RowOperand>
read_optional(const mx::array* a, int width, LaunchPlan& plan);

// A parameter that broadcasts to x: row i of x uses row i of that.
RowOperand read_broadcast(
    const mx::array& a,
    const mx::array& x,
    int width,
    LaunchPlan& plan);

// The flags of an output, which is row-contiguous.
int32_t output_flags(const mx::array& a, int width);

// The same of a row-contiguous parameter, of which one row may end in a vector.
int32_t parameter_flags(const mx::array& a, int width);

// Sets how a row of this length, or of any if lengths are mixed, is spread over
// threads, for a kernel K.
template <typename K>
void bind_geometry(
    Launch& launch,
    const Geometry& geometry,
    int length,
    bool mixed = false) {
  launch.set(K::simds_per_row, geometry.simds);
  launch.set(K::lanes_per_row, geometry.lanes);
  launch.set(K::looped, geometry.looped);
  launch.set(K::whole, !mixed && geometry.is_whole(length));
  launch.set(K::no_tail, !geometry.is_scattered(length));
  launch.set(K::scattered, geometry.is_scattered(length));
  launch.set(K::full_count, mixed ? 0 : geometry.full_count(length));
}

// Binds an operand with its flags and its layout. The flags are always set, and
// the constant that tells whether it is there.
void bind_rows(
    Launch& launch,
    Rows rows,
    const std::optional<RowOperand>& operand);

// The same of an output, read or written in vectors of `width` elements; null:
// absent.
void bind_rows(Launch& launch, RowsWritten rows, const mx::array* a, int width);

} // namespace mlx_norms
