// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/rows.h"

#include <algorithm>

#include "csrc/common/axes.h"
#include "csrc/gpu/integers.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

using namespace kernels;

constexpr int64_t kLongestRow = 1 << 30; // adding a chunk does not overflow
constexpr int kRowAxes = 3;              // of a layout
constexpr int kGatherThreads = 256;

int64_t step_of(const mx::array& a) {
  return a.shape(-1) == 1 ? 1 : a.strides(-1);
}

// The alignment of a vector of `width` elements in bytes, a power of two:
// kernels load at most 16 bytes at once.
int64_t alignment_of(const mx::array& a, int width) {
  return std::min<int64_t>(16, width * a.itemsize());
}

bool is_multiple(int64_t bytes, int64_t alignment) {
  return (bytes & (alignment - 1)) == 0;
}

// Whether every vector of `width` elements is aligned.
bool aligned(const mx::array& a, int width, const Axes& axes) {
  auto alignment = alignment_of(a, width);
  return is_multiple(a.offset(), alignment) &&
      std::all_of(axes.begin(), axes.end(), [&](const auto& axis) {
           return axis.size == 1 ||
               is_multiple(axis.strides[0] * a.itemsize(), alignment);
         });
}

// The layout of these row axes, if one can hold them.
std::optional<Launch::Layout> make_layout(const Axes& axes, int64_t step) {
  if (axes.size() > kRowAxes || !fits_int32(step)) {
    return std::nullopt;
  }
  Launch::Layout layout{};
  layout[kStep] = step;
  layout[kSize0] = layout[kSize1] = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto& axis = axes[axes.size() - 1 - i];
    if (!fits_int32(axis.strides[0]) || !fits_int32(axis.size)) {
      return std::nullopt;
    }
    if (i < kRowAxes - 1) {
      layout[kSize0 + i] = axis.size;
    }
    layout[kStride0 + i] = axis.strides[0];
  }
  return layout;
}

// Adds launches that copy a's rows to a row-contiguous array, one per index of
// the outer axes.
const mx::array&
gather(const mx::array& a, const Axes& axes, LaunchPlan& plan) {
  using K = kernels::gather_rows;
  const auto& dense = plan.temporary(a.shape(), a.dtype());
  // The innermost axes that fit in a layout; each launch has one index of each
  // outer axis.
  size_t outer = axes.size();
  int64_t rows = 1; // per launch
  while (outer > 0 && axes.size() - outer < kRowAxes &&
         fits_int32(axes[outer - 1].strides[0]) &&
         fits_int32(rows * axes[outer - 1].size)) {
    rows *= axes[--outer].size;
  }
  Axes inner(axes.begin() + outer, axes.end());
  auto layout = make_layout(inner, step_of(a));
  if (!layout) {
    throw std::runtime_error(
        "[mlx_norms] The elements of a row lie too far apart for a GPU kernel.");
  }
  Axes of_launches(axes.begin(), axes.begin() + outer);
  auto launches = size_of(of_launches);
  for (int64_t n = 0; n < launches; ++n) {
    auto offset = offsets_at(of_launches, n)[0];
    auto& launch = plan.launch({"gather_rows", static_cast<int>(a.itemsize())});
    launch.set(K::from, a, offset * a.itemsize());
    launch.set(K::to, dense, n * rows * a.shape(-1) * a.itemsize());
    launch.set(K::layout, *layout);
    launch.set(K::length, a.shape(-1));
    // Rows are along x, where CUDA grids are not limited to 65535.
    constexpr int kSimdSize = Geometry::kSimdSize;
    int simds = ceil_div(a.shape(-1), kGathered * kSimdSize);
    uint32_t threads = std::min(simds * kSimdSize, kGatherThreads);
    launch.group = {1, threads, 1};
    launch.groups = {
        static_cast<uint32_t>(rows),
        ceil_div<uint32_t>(a.shape(-1), threads * kGathered),
        1};
  }
  return dense;
}

RowOperand operand(const mx::array& a, int width, Axes axes) {
  bool vectors = step_of(a) == 1 && aligned(a, width, axes);
  return {&a, float_type(a.dtype()) | (vectors ? kVectors : 0), {}};
}

} // namespace

int32_t float_type(mx::Dtype dtype) {
  return dtype == mx::float32 ? kFloat32
      : dtype == mx::float16  ? kFloat16
                              : kBFloat16;
}

bool can_fetch(const RowOperand& rows, int width) {
  return (rows.flags & kVectors) && width * rows.array->itemsize() == 16;
}

int32_t row_count(const mx::array& x) {
  auto rows = static_cast<int64_t>(x.size()) / std::max(x.shape(-1), 1);
  if (rows > kInt32Max || x.shape(-1) > kLongestRow) {
    throw std::runtime_error(
        "[mlx_norms] A GPU kernel normalizes at most 2^31 - 1 rows at once, of "
        "at most 2^30 elements.");
  }
  return rows;
}

RowOperand read_rows(const mx::array& a, int width, LaunchPlan& plan) {
  if (a.flags().row_contiguous) {
    return {&a, output_flags(a, width), {}};
  }
  auto axes = row_axes(a);
  auto rows = operand(a, width, axes);
  auto length = a.shape(-1);
  bool dense = step_of(a) == 1 && axes.size() == 1 &&
      (axes[0].size == 1 || axes[0].strides[0] == length);
  if (dense) {
    return rows;
  }
  if ((rows.layout = make_layout(axes, step_of(a)))) {
    rows.flags |= axes.size() <= 2 ? kTwoAxes : 0;
    return rows;
  }
  const auto& copy = gather(a, axes, plan);
  return {&copy, output_flags(copy, width), {}};
}

const mx::array& make_dense(const mx::array& a, LaunchPlan& plan) {
  return gather(a, row_axes(a), plan);
}

RowOperand read_parameter(const mx::array& a, int width, LaunchPlan& plan) {
  auto parameter = a.flags().row_contiguous
      ? RowOperand{&a, parameter_flags(a, width), {}}
      : operand(a, width, row_axes(a));
  auto heads = a.ndim() == 2 ? a.shape(0) : 1;
  auto stride = a.ndim() == 2 ? a.strides(0) : 0;
  if (!fits_int32(stride) || !fits_int32(step_of(a))) {
    const auto& copy = gather(a, row_axes(a), plan);
    return read_parameter(copy, width, plan);
  }
  if (heads == 1 && step_of(a) == 1) {
    parameter.flags |= kOneRow;
    return parameter;
  }
  parameter.flags |= kTwoAxes;
  auto& layout = parameter.layout.emplace();
  layout[kStep] = step_of(a);
  layout[kSize0] = heads;
  layout[kSize1] = 1;
  layout[kStride0] = stride;
  return parameter;
}

std::optional<RowOperand>
read_optional(const mx::array* a, int width, LaunchPlan& plan) {
  return a ? std::optional(read_parameter(*a, width, plan)) : std::nullopt;
}

RowOperand read_broadcast(
    const mx::array& a,
    const mx::array& x,
    int width,
    LaunchPlan& plan) {
  bool one_row = a.size() == static_cast<size_t>(a.shape(-1));
  if (a.shape() == x.shape() && !one_row) {
    return read_rows(a, width, plan);
  }
  auto& view = plan.views.emplace_back(
      broadcast_view(a, one_row ? mx::Shape{a.shape(-1)} : x.shape()));
  return one_row ? read_parameter(view, width, plan)
                 : read_rows(view, width, plan);
}

// The flags of one row, too, are those of several, whose kernel it has.
int32_t output_flags(const mx::array& a, int width) {
  auto alignment = alignment_of(a, width);
  bool vectors = is_multiple(a.offset(), alignment) &&
      is_multiple(a.shape(-1) * a.itemsize(), alignment);
  return float_type(a.dtype()) | (vectors ? kVectors : 0);
}

int32_t parameter_flags(const mx::array& a, int width) {
  bool one_row = a.size() == static_cast<size_t>(a.shape(-1));
  bool vectors = is_multiple(a.offset(), alignment_of(a, width));
  return one_row ? float_type(a.dtype()) | (vectors ? kVectors : 0)
                 : output_flags(a, width);
}

void bind_rows(
    Launch& launch,
    Rows rows,
    const std::optional<RowOperand>& operand) {
  auto flags = operand ? operand->flags : 0;
  if (operand && operand->layout) {
    launch.set(
        Words{rows.layouts + kLayoutWords * launch.layouts}, *operand->layout);
    launch.layouts += 1;
    flags |= kLayout * launch.layouts;
  }
  launch.set(Constant<int32_t>{rows.flags}, flags);
  if (rows.condition >= 0) {
    launch.set(Constant<bool>{rows.condition}, operand.has_value());
  }
  if (operand) {
    launch.set(rows, *operand->array);
  }
}

void bind_rows(
    Launch& launch,
    RowsWritten rows,
    const mx::array* a,
    int width) {
  launch.set(Constant<int32_t>{rows.flags}, a ? output_flags(*a, width) : 0);
  if (a) {
    launch.set(rows, *a);
  }
}

} // namespace mlx_norms
