// Copyright © 2026 mlx_norms contributors

#include <string_view>

#include "csrc/gpu/batch_axes.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/ladders/sgemm.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

// C = A B for the matrices of one launch.
struct Matrices {
  const array& a;
  const array& b;
  const array& c;
  int depth;
  Steps inner; // of the launch's batch axis
};

template <typename K>
void fill(Launch& launch, const Matrices& f, const Steps& first) {
  constexpr int64_t kBytes = sizeof(float);
  launch.set(K::a, f.a, first[0] * kBytes);
  launch.set(K::b, f.b, first[1] * kBytes);
  launch.set(K::c, f.c, first[2] * kBytes);
  launch.set(K::rows, f.c.shape(-2));
  launch.set(K::columns, f.c.shape(-1));
  launch.set(K::depth, f.depth);
  launch.set(K::a_step, f.inner[0] != 0);
  launch.set(K::b_step, f.inner[1] != 0);
}

// How a rung's threadgroups divide C.
struct Tiles {
  std::string_view rung;
  const char* kernel;
  void (*fill)(Launch&, const Matrices&, const Steps&);
  int side; // of a group's tile of C, which is square
  std::array<uint32_t, 3> group;
};

using namespace kernels;
constexpr Tiles kTiles[] = {
    {"naive", "sgemm_naive", fill<sgemm_naive>, 16, {16, 16, 1}},
    {"tile_16", "sgemm_tile_16", fill<sgemm_square_tiles>, 16, {16, 16, 1}},
    {"tile_32", "sgemm_tile_32", fill<sgemm_square_tiles>, 32, {32, 32, 1}},
    {"tile_threads",
     "sgemm_tile_threads",
     fill<sgemm_tile_threads>,
     32,
     {8, 8, 1}},
    {"tile_simdgroup",
     "sgemm_tile_simdgroup",
     fill<sgemm_tile_simdgroup>,
     8,
     {32, 1, 1}}};

const Tiles& tiles_of(std::string_view rung) {
  for (const auto& tiles : kTiles) {
    if (tiles.rung == rung) {
      return tiles;
    }
  }
  throw std::logic_error("[mlx_norms] A rung has no kernel.");
}

} // namespace

LaunchPlan SgemmRung::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) const {
  const auto &a = inputs[0], &b = inputs[1], &c = outputs[0];
  LaunchPlan plan(stream);
  if (c.size() == 0) {
    return plan;
  }
  const auto& tiles = tiles_of(rung->name);
  int64_t rows = c.shape(-2), columns = c.shape(-1);
  // One launch covers the innermost axis, along which A and B have a matrix
  // each or one for all.
  auto axes = batch_axes(a, b, c);
  auto inner = take_inner_axis(axes);
  int64_t side = tiles.side;
  int64_t groups = inner.size * ceil_div(rows, side) * ceil_div(columns, side);
  if (!fits_int32(groups)) {
    throw std::runtime_error(
        "[mlx_norms] A product by a rung of the ladder takes at most 2^31 - 1 "
        "threadgroups.");
  }
  // With a depth of 0 nothing is read, but something must be bound.
  int depth = a.shape(-1);
  const auto* none = depth == 0 ? &plan.temporary({1}, mx::float32) : nullptr;
  Matrices factors{none ? *none : a, none ? *none : b, c, depth, inner.strides};

  for_each_matrix(axes, [&](const auto& first) {
    auto& launch = plan.launch({tiles.kernel});
    tiles.fill(launch, factors, first);
    launch.groups[0] = groups;
    launch.group = tiles.group;
  });
  return plan;
}

} // namespace mlx_norms
