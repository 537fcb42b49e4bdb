// Copyright © 2026 mlx_norms contributors

#include <limits>
#include <string_view>

#include "csrc/ladders/matmul_rung.h"
#include "csrc/outputs.h"
#include "csrc/plan/ceil_div.h"
#include "csrc/plan/launch_plan.h"

namespace mlx_norms {

namespace {

// Buffers of kernels/sgemm_ladder.
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

// A batch axis, and how many matrices of A, B and C each step along it is: 0
// where an operand has one for all.
struct BatchAxis {
  int64_t size;
  std::array<int64_t, 3> steps;

  // Whether steps along `outer` are steps past this axis's end.
  bool continues_in(const BatchAxis& outer) const {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (outer.steps[i] != size * steps[i]) {
        return false;
      }
    }
    return true;
  }
};

// The batch axes of C = A B, innermost first, with those merged that can be. At
// least one; in the first A and B have steps of 0 or 1.
std::vector<BatchAxis>
batch_axes(const array& a, const array& b, const array& c) {
  std::vector<BatchAxis> axes;
  std::array<int64_t, 3> matrices = {1, 1, 1}; // within the axes so far
  for (int i = 3; i <= static_cast<int>(c.ndim()); ++i) {
    BatchAxis axis{c.shape(-i), {}};
    if (axis.size == 1) {
      continue;
    }
    size_t n = 0;
    for (auto* operand : {&a, &b, &c}) {
      int size =
          i <= static_cast<int>(operand->ndim()) ? operand->shape(-i) : 1;
      axis.steps[n] = size == 1 ? 0 : matrices[n];
      matrices[n++] *= size;
    }
    if (!axes.empty() && axes.back().continues_in(axis)) {
      axes.back().size *= axis.size;
    } else {
      axes.push_back(axis);
    }
  }
  if (axes.empty()) {
    axes.push_back({1, {0, 0, 0}});
  }
  return axes;
}

LaunchPlan plan_matmul(
    const Geometry& geometry,
    const array& a,
    const array& b,
    const array& c,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  if (c.size() == 0) {
    return plan;
  }
  int64_t rows = c.shape(-2), columns = c.shape(-1), depth = a.shape(-1);
  auto axes = batch_axes(a, b, c);
  const auto& inner = axes[0];
  int64_t tile = geometry.tile;
  int64_t groups = inner.size * ceil_div(rows, tile) * ceil_div(columns, tile);
  if (groups > std::numeric_limits<int32_t>::max()) {
    throw std::runtime_error(
        "[mlx_norms] A product by a rung of the ladder takes at most 2^31 - 1 "
        "threadgroups.");
  }
  // Without products nothing is read, but something must be bound.
  const auto* none = depth == 0 ? &plan.temporary({1}, mx::float32) : nullptr;

  int64_t launches = 1;
  for (size_t i = 1; i < axes.size(); ++i) {
    launches *= axes[i].size;
  }
  for (int64_t n = 0; n < launches; ++n) {
    std::array<int64_t, 3> first = {}; // matrices of A, B and C
    int64_t rest = n;
    for (size_t i = 1; i < axes.size(); rest /= axes[i++].size) {
      for (size_t k = 0; k < first.size(); ++k) {
        first[k] += rest % axes[i].size * axes[i].steps[k];
      }
    }
    auto& launch = plan.launch({geometry.kernel});
    launch.input(kA, none ? *none : a, first[0] * rows * depth * sizeof(float));
    launch.input(
        kB, none ? *none : b, first[1] * depth * columns * sizeof(float));
    launch.output(kC, c, first[2] * rows * columns * sizeof(float));
    launch.scalar(kRows, static_cast<int32_t>(rows));
    launch.scalar(kColumns, static_cast<int32_t>(columns));
    launch.scalar(kDepth, static_cast<int32_t>(depth));
    launch.scalar(kAStep, static_cast<int32_t>(inner.steps[0]));
    launch.scalar(kBStep, static_cast<int32_t>(inner.steps[1]));
    launch.groups[0] = groups;
    launch.group = geometry.group;
  }
  return plan;
}

} // namespace

void MatmulRung::eval_gpu(const Arrays& inputs, Arrays& outputs) {
  auto& c = outputs[0];
  allocate_new(c, stream());
  const auto& geometry = geometry_of(rung_.name);
  encode(plan_matmul(geometry, inputs[0], inputs[1], c, stream()));
}

} // namespace mlx_norms
