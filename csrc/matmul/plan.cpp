// Copyright © 2026 mlx_norms contributors

#include "csrc/matmul/plan.h"

#include <limits>

#include "csrc/gpu/batch_axes.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

int32_t checked(int64_t value) {
  if (!fits_int32(value)) {
    throw std::runtime_error(
        "[mlx_norms] A product is beyond what its kernel counts to.");
  }
  return static_cast<int32_t>(value);
}

// A matrix of an operand; strides are in elements.
struct Matrix {
  const mx::array* array;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride;

  explicit Matrix(const mx::array& a)
      : array(&a),
        rows(a.shape(-2)),
        columns(a.shape(-1)),
        row_stride(a.strides(-2)),
        column_stride(a.strides(-1)) {}

  Matrix transposed() const {
    auto other = *this;
    std::swap(other.rows, other.columns);
    std::swap(other.row_stride, other.column_stride);
    return other;
  }

  bool adjoins_along_rows() const {
    return columns > 1 ? column_stride == 1 : row_stride != 1;
  }
  bool adjoins_along_columns() const {
    return rows > 1 ? row_stride == 1 : true;
  }

  // Whether its lines are columns.
  bool is_transposed() const {
    return !adjoins_along_rows();
  }
  int64_t line_stride() const {
    return adjoins_along_rows() ? (rows > 1 ? row_stride : 0)
                                : (columns > 1 ? column_stride : 0);
  }
  bool has_lines() const {
    return (adjoins_along_rows() || adjoins_along_columns()) &&
        fits_int32(line_stride());
  }
};

// The matrices of a matmul, and the batch axes outside of them.
struct Factors {
  Matrix a;
  Matrix b;
  const mx::array& c;
  Axes axes;

  Factors(const mx::array& a, const mx::array& b, const mx::array& c)
      : a(a),
        b(b),
        c(c),
        axes(batch_axes(a, b, c)) {}

  int64_t element_bytes() const {
    return c.itemsize();
  }

  // Turns batch axes that share one B into rows of A, up to `most` rows.
  void take_rows(int64_t max) {
    while (!axes.empty()) {
      const auto& inner = axes.back();
      bool are_rows = inner.strides[1] == 0 &&
          (a.rows == 1 || inner.strides[0] == a.rows * a.row_stride);
      if (!are_rows || a.rows * inner.size > max) {
        return;
      }
      auto more = a;
      more.row_stride = a.rows == 1 ? inner.strides[0] : a.row_stride;
      more.rows *= inner.size;
      if (!fits_int32(more.row_stride) ||
          (a.has_lines() && !more.has_lines())) {
        return;
      }
      a = more;
      axes.pop_back();
    }
  }

  // Removes the innermost axis, which the launch itself then covers, if its
  // strides fit.
  Axis take_inner() {
    bool fits = axes.empty() ||
        (fits_int32(axes.back().strides[0]) &&
         fits_int32(axes.back().strides[1]));
    return fits ? take_inner_axis(axes) : Axis{1, {}};
  }

  // Whether vectors of so many elements are aligned along all lines of the
  // matrix. To be called before an axis is removed.
  bool aligned(const Matrix& m, size_t operand, int64_t elements) const {
    auto bytes = std::min<int64_t>(16, elements * element_bytes());
    auto is_multiple = [&](int64_t stride) {
      return stride * element_bytes() % bytes == 0;
    };
    return m.array->offset() % bytes == 0 && is_multiple(m.line_stride()) &&
        std::ranges::all_of(axes, [&](const auto& axis) {
             return is_multiple(axis.strides[operand]);
           });
  }
};

// The array, or a dense copy if `is_so` does not hold for its matrices.
template <typename F>
const mx::array& with(F is_so, const mx::array& a, LaunchPlan& plan) {
  return a.size() == 0 || is_so(Matrix(a)) ? a : make_dense(a, plan);
}

const mx::array& with_lines(const mx::array& a, LaunchPlan& plan) {
  return with([](const Matrix& m) { return m.has_lines(); }, a, plan);
}

const mx::array& with_steps(const mx::array& a, LaunchPlan& plan) {
  auto fit = [](const Matrix& m) {
    return fits_int32(m.row_stride) && fits_int32(m.column_stride);
  };
  return with(fit, a, plan);
}

// The array to bind; a placeholder if the depth is 0, where nothing is read.
const mx::array& bound(const mx::array& a, int64_t depth, LaunchPlan& plan) {
  return depth > 0 ? a : plan.temporary({1}, mx::float32);
}

void add_blocked(Factors f, LaunchPlan& plan) {
  using K = kernels::simdgroup_blocked;
  int tile = blocked_tile(f.a.rows, f.b.columns);
  int tile_depth = blocked_depth(tile);
  auto rows = f.a.rows, columns = f.b.columns, depth = f.a.columns;
  bool a_vectors = f.aligned(f.a, 0, 4), b_vectors = f.aligned(f.b, 1, 4);
  auto inner = f.take_inner();
  auto groups = checked(
      inner.size * ceil_div<int64_t>(rows, tile) *
      ceil_div<int64_t>(columns, tile));
  const auto& a = bound(*f.a.array, depth, plan);
  const auto& b = bound(*f.b.array, depth, plan);
  for_each_matrix(f.axes, [&](const auto& first) {
    auto& launch = plan.launch({"simdgroup_blocked", tile});
    launch.set(K::matmul_type, float_type(f.c.dtype()));
    launch.set(K::a_transposed, f.a.is_transposed());
    launch.set(K::b_transposed, f.b.is_transposed());
    launch.set(K::a_vectors, a_vectors);
    launch.set(K::b_vectors, b_vectors);
    launch.set(
        K::whole_tiles,
        rows % tile == 0 && columns % tile == 0 && depth % tile_depth == 0);
    launch.set(K::a, a, first[0] * f.element_bytes());
    launch.set(K::b, b, first[1] * f.element_bytes());
    launch.set(K::c, f.c, first[2] * f.element_bytes());
    launch.set(K::rows, checked(rows));
    launch.set(K::columns, checked(columns));
    launch.set(K::depth, checked(depth));
    launch.set(K::a_line, checked(f.a.line_stride()));
    launch.set(K::b_line, checked(f.b.line_stride()));
    launch.set(K::a_matrix, checked(inner.strides[0]));
    launch.set(K::b_matrix, checked(inner.strides[1]));
    launch.groups[0] = groups;
    launch.group = {128, 1, 1};
  });
}

// A matmul of few rows x by w. Each column of w gives one output.
struct Gemv {
  Matrix x;
  Matrix w;
  const mx::array& c;
  bool transposed; // C is stored column by column
  bool w_vectors;
  bool x_vectors;
  Axis inner; // the launch's batch axis, of x and w
};

// How the threadgroups of a gemv share the work. This depends only on the shape
// of w.
struct GemvGroups {
  KernelName kernel;
  void (*fill)(Launch&, const Gemv&, const GemvGroups&, const Steps&);
  int64_t outputs; // per threadgroup
  int simds = 8;
  int splits = 1;  // SIMD-groups that share lines, of gemv_lines
  int cluster = 1; // threadgroups that share the depth, of gemv_column_tiles
  uint32_t threads_per_core = 512;
};

// Sets the constants and arguments of a gemv launch; `first` has the offsets of
// x, w and C.
template <typename K>
void fill_gemv(
    Launch& launch,
    const Gemv& gemv,
    const GemvGroups& by,
    const Steps& first) {
  const auto& [x, w, c, transposed, w_vectors, x_vectors, inner] = gemv;
  auto outputs = checked(w.columns);
  int64_t bytes = c.itemsize();
  launch.set(K::matmul_type, float_type(c.dtype()));
  launch.set(K::x, *x.array, first[0] * bytes);
  launch.set(K::w, *w.array, first[1] * bytes);
  launch.set(K::c, c, first[2] * bytes);
  launch.set(K::x_vectors, x_vectors);
  launch.set(K::depth, checked(x.columns));
  launch.set(K::x_row, checked(x.rows > 1 ? x.row_stride : 0));
  launch.set(K::x_step, checked(x.columns > 1 ? x.column_stride : 1));
  launch.set(K::c_row, transposed ? 1 : outputs);
  launch.set(K::c_column, transposed ? checked(x.rows) : 1);
  launch.set(K::x_matrix, checked(inner.strides[0]));
  launch.set(K::w_matrix, checked(inner.strides[1]));
  if constexpr (requires { K::lines; }) {
    launch.set(K::lines, outputs);
    launch.set(K::w_line, checked(w.line_stride()));
  } else {
    launch.set(K::columns, outputs);
    launch.set(K::w_row, checked(w.line_stride()));
  }
  if constexpr (requires { K::w_vectors; }) {
    launch.set(K::w_vectors, w_vectors);
  } else { // tiles, whose vectors are always aligned
    launch.set(K::rows, checked(x.rows));
  }
  if constexpr (requires { K::splits; }) {
    launch.set(K::splits, by.splits);
  }
  if constexpr (requires { K::cluster; }) {
    launch.set(K::cluster, by.cluster);
  }
}

// How many SIMD-groups share the depth: their number is doubled as long as each
// has at least `each` of it.
int depth_simds(int64_t depth, int each, int max) {
  int simds = 1;
  while (simds < max && depth >= int64_t{each} * simds) {
    simds *= 2;
  }
  return simds;
}

GemvGroups gemv_groups(bool lines, int rows, int64_t depth) {
  if (lines) {
    constexpr int kSimds = 8;
    int splits = depth_simds(depth, 1024, kSimds);
    return {
        {"gemv_lines", rows},
        fill_gemv<kernels::gemv_lines>,
        4 * kSimds / splits,
        kSimds,
        splits};
  }
  return {
      {"gemv_columns", rows},
      fill_gemv<kernels::gemv_columns>,
      32,
      depth_simds(depth, 128, 16)};
}

// Tiles by what was fastest on an H200. `elements` is a vector's number: 8 of
// 16 bits, or 4, which need more registers.
GemvGroups
line_tiles(int64_t outputs, int elements, const DeviceLimits& limits) {
  constexpr int kLines = 16;
  auto groups = ceil_div<int64_t>(outputs, kLines);
  // If there are many groups, they are small: several run on a core at once and
  // follow each other.
  bool many = groups >= 4 * limits.cores;
  int simds = many ? 4 : 8;
  GemvGroups by{
      {"gemv_line_tiles", elements, simds},
      fill_gemv<kernels::gemv_line_tiles>,
      kLines,
      simds};
  by.threads_per_core = many || groups <= limits.cores ? 512 : 768;
  return by;
}

GemvGroups column_tiles(
    int64_t outputs,
    int64_t depth,
    int elements,
    const DeviceLimits& limits) {
  GemvGroups by{
      {"gemv_column_tiles", elements},
      fill_gemv<kernels::gemv_column_tiles>,
      8 * elements};
  auto groups = ceil_div(outputs, by.outputs);
  // If there are few groups, clusters share their work, so that every core has
  // some.
  while (2 * by.cluster <= limits.cluster &&
         2 * by.cluster * groups <= limits.cores && depth >= 512 * by.cluster) {
    by.cluster *= 2;
  }
  if (by.cluster > 1) {
    by.simds = by.cluster == 2 && elements == 8 ? 12 : 8;
  } else {
    int max = groups > limits.cores ? 8 : 16;
    by.simds = std::max(4, depth_simds(depth, 128, max)); // four store
  }
  by.kernel.second = by.simds;
  by.threads_per_core = elements == 8 ? 768 : 512;
  return by;
}

// C = A B with few rows of A or, the other way about, C^T = B^T A^T.
void add_gemv(Factors f, bool other_way, LaunchPlan& plan) {
  auto x = other_way ? f.b.transposed() : f.a;
  auto w = other_way ? f.a.transposed() : f.b;
  size_t of_x = other_way, of_w = !other_way;
  auto outputs = w.columns, depth = x.columns;
  bool lines = w.is_transposed();
  bool w_vectors =
      depth % 8 == 0 && (lines || outputs % 8 == 0) && f.aligned(w, of_w, 8);
  bool x_vectors =
      depth % 8 == 0 && x.column_stride == 1 && f.aligned(x, of_x, 8);
  // This depends only on w, so rows are batch-invariant.
  auto limits = device_limits(plan.stream);
  bool tiles = w_vectors && multiplies_by_tiles(plan.stream);
  int elements = 16 / f.element_bytes();
  auto axis = f.take_inner();
  Axis inner{axis.size, {axis.strides[of_x], axis.strides[of_w], 0}};
  x.array = &bound(*x.array, depth, plan);
  w.array = &bound(*w.array, depth, plan);
  Gemv gemv{x, w, f.c, other_way, w_vectors, x_vectors, inner};
  auto by = !tiles ? gemv_groups(lines, checked(x.rows), depth)
      : lines      ? line_tiles(outputs, elements, limits)
                   : column_tiles(outputs, depth, elements, limits);
  auto groups =
      checked(inner.size * ceil_div(outputs, by.outputs) * by.cluster);
  for_each_matrix(f.axes, [&](const auto& first) {
    auto& launch = plan.launch(by.kernel);
    by.fill(launch, gemv, by, {first[of_x], first[of_w], first[2]});
    launch.groups[0] = groups;
    launch.group[0] = 32 * by.simds;
    launch.threads_per_core = by.threads_per_core;
    launch.cluster = by.cluster;
    launch.staged_bytes = by.cluster > 1 ? 16 * launch.group[0] : 0;
  });
}

constexpr auto kAnyRows = std::numeric_limits<int32_t>::max();

} // namespace

// The part of a tile past an edge is wasted work.
int blocked_tile(int64_t rows, int64_t columns) {
  return std::min(rows, columns) <= 32 ? 32 : 64;
}

int blocked_depth(int tile) {
  return tile == 32 ? 32 : 16;
}

LaunchPlan plan_blocked(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  if (c.size() > 0) {
    Factors f(with_lines(a, plan), with_lines(b, plan), c);
    f.take_rows(kAnyRows);
    add_blocked(std::move(f), plan);
  }
  return plan;
}

LaunchPlan plan_gemv(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  if (c.size() > 0) {
    bool other_way = c.shape(-2) > kGemvRows;
    Factors f(
        other_way ? with_lines(a, plan) : with_steps(a, plan),
        other_way ? with_steps(b, plan) : with_lines(b, plan),
        c);
    f.take_rows(other_way ? kAnyRows : kGemvRows);
    add_gemv(std::move(f), other_way, plan);
  }
  return plan;
}

LaunchPlan plan_matmul(
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream) {
  bool few = std::min(c.shape(-2), c.shape(-1)) <= kGemvRows;
  if (c.size() > 0 && c.ndim() > 2 && few && c.shape(-1) > kGemvRows) {
    // Few rows in each of many batches are many rows, if they share one B.
    Factors f(a, b, c);
    f.take_rows(kAnyRows);
    few = f.a.rows <= kGemvRows;
  }
  return few ? plan_gemv(a, b, c, stream) : plan_blocked(a, b, c, stream);
}

} // namespace mlx_norms
