// Copyright © 2026 mlx_norms contributors

#include <limits>
#include <string_view>

#include "csrc/gpu/batch_axes.h"
#include "csrc/gpu/integers.h"
#include "csrc/ladders/sgemm_plan.h"

namespace mlx_norms {

namespace {

// Buffers of kernels/ladders/sgemm.
enum Buffer {
  kA = 0,
  kB = 1,
  kC = 2,
  kRows = 3,
  kColumns = 4,
  kDepth = 5,
  kAStep = 6,
  kBStep = 7
};

struct Geometry {
  std::string_view rung;
  const char* kernel;
  int tile; // of C, square, that a group has
  std::array<uint32_t, 3> group;
};

constexpr Geometry kGeometries[] = {
    {"naive", "sgemm_naive", 16, {16, 16, 1}},
    {"tile_16", "sgemm_tile_16", 16, {16, 16, 1}},
    {"tile_32", "sgemm_tile_32", 32, {32, 32, 1}},
    {"tile_threads", "sgemm_tile_threads", 32, {8, 8, 1}},
    {"tile_simdgroup", "sgemm_tile_simdgroup", 8, {32, 1, 1}}};

const Geometry& geometry_of(std::string_view rung) {
  for (const auto& geometry : kGeometries) {
    if (geometry.rung == rung) {
      return geometry;
    }
  }
  throw std::logic_error("[mlx_norms] A rung has no kernel.");
}

} // namespace

LaunchPlan plan_sgemm(
    const Rung& rung,
    const mx::array& a,
    const mx::array& b,
    const mx::array& c,
    mx::Stream stream) {
  const auto& geometry = geometry_of(rung.name);
  LaunchPlan plan(stream);
  if (c.size() == 0) {
    return plan;
  }
  int64_t rows = c.shape(-2), columns = c.shape(-1), depth = a.shape(-1);
  // One launch for the innermost axis, in which A and B have a matrix each or
  // one for all.
  auto axes = batch_axes(a, b, c);
  auto inner = take_inner_axis(axes);
  int64_t tile = geometry.tile;
  int64_t groups = inner.size * ceil_div(rows, tile) * ceil_div(columns, tile);
  if (groups > std::numeric_limits<int32_t>::max()) {
    throw std::runtime_error(
        "[mlx_norms] A product by a rung of the ladder takes at most 2^31 - 1 "
        "threadgroups.");
  }
  // Without products nothing is read, but something must be bound.
  const auto* none = depth == 0 ? &plan.temporary({1}, mx::float32) : nullptr;

  for_each_matrix(axes, [&](const auto& first) {
    auto& launch = plan.launch({geometry.kernel});
    launch.input(kA, none ? *none : a, first[0] * sizeof(float));
    launch.input(kB, none ? *none : b, first[1] * sizeof(float));
    launch.output(kC, c, first[2] * sizeof(float));
    launch.scalar(kRows, static_cast<int32_t>(rows));
    launch.scalar(kColumns, static_cast<int32_t>(columns));
    launch.scalar(kDepth, static_cast<int32_t>(depth));
    launch.scalar(kAStep, int32_t{inner.strides[0] != 0});
    launch.scalar(kBStep, int32_t{inner.strides[1] != 0});
    launch.groups[0] = groups;
    launch.group = geometry.group;
  });
  return plan;
}

} // namespace mlx_norms
