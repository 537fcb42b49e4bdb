// Copyright © 2026 mlx_norms contributors
//
// The launch of a quantized product on CUDA's matrix units.

#include <atomic>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"
#include "csrc/linear/plan.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

using K = kernels::quantized_tiles;

std::atomic<bool> tiles_anywhere = false;
std::atomic<int> forced_lines = 0, forced_simds = 0, forced_cluster = 0;

// How threadgroups share the work. What depends on the rows are only the tiles,
// which do not change the order of sums.
struct Tiles {
  int lines; // tiles of 16 lines in a threadgroup
  int rows;  // tiles of 8 rows
  int simds; // that share the depth, as do those of all a cluster's
             // threadgroups
  int cluster = 1;
};

// A guess: not yet measured.
Tiles tiles_for(
    int64_t outputs,
    int steps,
    int rows,
    bool float32,
    const DeviceLimits& gpu) {
  auto groups_of = [&](int tiles) {
    return ceil_div<int64_t>(outputs, 16 * tiles);
  };
  // Two tiles of lines share what is read of x, if all cores have some.
  Tiles tiles{.lines = 8 * groups_of(2) >= 7 * gpu.cores ? 2 : 1};
  auto groups = groups_of(tiles.lines);
  int most = groups <= gpu.cores && !float32 ? 16 : 8;
  tiles.simds = 4;
  while (tiles.simds < most && 2 * tiles.simds <= steps) {
    tiles.simds *= 2;
  }
  while (2 * tiles.cluster <= gpu.cluster &&
         2 * tiles.cluster * groups <= gpu.cores &&
         2 * tiles.cluster * tiles.simds <= steps) {
    tiles.cluster *= 2;
  }
  auto force = [](int& number, int forced) {
    number = forced ? forced : number;
  };
  force(tiles.lines, forced_lines);
  force(tiles.simds, forced_simds);
  force(tiles.cluster, forced_cluster);
  tiles.rows = rows <= 8 ? 1 : 2;
  if (tiles.rows == 2 && tiles.simds == 16) {
    tiles.lines = 1; // for want of registers
  }
  return tiles;
}

} // namespace

void set_product_tiles_anywhere(bool anywhere) {
  tiles_anywhere = anywhere;
}

void set_product_tiles(int lines, int simds, int cluster) {
  forced_lines = lines;
  forced_simds = simds;
  forced_cluster = cluster;
}

bool multiplies_by_tiles(mx::Stream stream) {
  return device_limits(stream).matrix_units || tiles_anywhere;
}

LaunchPlan plan_tiles(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    const array& y,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  NormInputs in(spec.norm, inputs.data());
  if (y.size() == 0) {
    return plan;
  }
  const auto& form = spec.projections[0];
  auto of_weight = projection_inputs(spec, inputs)[0];
  const auto& [w, scales, zeros, _] = of_weight;
  int length = in.x.shape(-1);
  int lines = w.shape(0);
  auto rows = row_count(in.x);
  constexpr int kVector = 8, kStepBytes = 128;
  int step = kStepBytes * 8 / form.bits;
  bool float32 = in.x.dtype() == mx::float32;
  int steps = ceil_div(length, step);
  auto tiles = tiles_for(lines, steps, rows, float32, device_limits(stream));
  auto is_aligned = [](const array& a) { return a.offset() % 16 == 0; };
  bool aligned = is_aligned(w) && w.shape(1) % 4 == 0 && is_aligned(*scales) &&
      is_aligned(*zeros);

  auto x = read_rows(in.x, kVector, plan);
  std::optional<RowOperand> residual;
  if (in.residual) {
    residual = read_rows(*in.residual, kVector, plan);
  }
  auto& launch =
      plan.launch({"quantized_tiles", tiles.lines, tiles.rows, tiles.simds});
  launch.set(K::whole, length % step == 0);
  launch.set(K::no_tail, true);
  launch.set(K::scattered, false);
  launch.set(K::cluster, tiles.cluster);
  launch.set(K::linear_bits, form.bits);
  launch.set(K::linear_group_size, form.group_size);
  launch.set(K::linear_aligned, aligned);
  launch.set(K::linear_has_residual, in.residual != nullptr);
  bind_rows(launch, K::x, K::linear_x_layout, K::linear_x_flags, x);
  bind_rows(
      launch,
      K::residual,
      K::linear_residual_layout,
      K::linear_residual_flags,
      residual);
  launch.set(K::w, w);
  launch.set(K::scales, *scales);
  launch.set(K::zeros, *zeros);
  launch.set(K::y, y);
  launch.set(K::lines, lines);
  launch.set(K::rows, rows);
  launch.set(K::length, length);
  launch.groups[0] = ceil_div(lines, 16 * tiles.lines) * tiles.cluster;
  launch.groups[1] = ceil_div(rows, 8 * tiles.rows);
  launch.group[0] = Geometry::kSimdSize * tiles.simds;
  bool many = tiles.lines * tiles.rows + float32 > 2; // registers
  launch.threads_per_core = many ? 256 : 512;
  launch.cluster = tiles.cluster;
  launch.staged_bytes = tiles.cluster > 1 ? 16 * launch.group[0] : 0;
  return plan;
}

} // namespace mlx_norms
