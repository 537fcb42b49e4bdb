// Copyright © 2026 mlx_norms contributors
//
// The launch of a quantized product on CUDA's matrix units.

#include <algorithm>
#include <atomic>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/linear/plan.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

using K = kernels::quantized_tiles;

constexpr int kTileLines = 32; // of a threadgroup

std::atomic<int> forced_simds = 0;

} // namespace

void set_product_simds(int simds) {
  forced_simds = simds;
}

LaunchPlan plan_tiles(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    const array& y,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  NormInputs in(spec.norm.operands, inputs.data());
  if (y.size() == 0) {
    return plan;
  }
  const auto& form = spec.projections[0];
  auto of_weight = projection_inputs(spec, inputs)[0];
  const auto& [w, scales, zeros, _] = of_weight;
  int length = in.x().shape(-1);
  int lines = w.shape(0);
  auto rows = row_count(in.x());
  constexpr int kVector = 8, kStepBytes = 128;
  int step = kStepBytes * 8 / form.bits;
  bool float32 = in.x().dtype() == mx::float32;
  auto is_aligned = [](const array& a) { return a.offset() % 16 == 0; };
  bool aligned = is_aligned(w) && w.shape(1) % 4 == 0 && is_aligned(*scales) &&
      is_aligned(*zeros);

  auto x = read_rows(in.x(), kVector, plan);
  std::optional<RowOperand> residual;
  if (in[kResidual]) {
    residual = read_rows(*in[kResidual], kVector, plan);
  }
  bool one_tile = rows <= 8;
  bool staged = aligned && backend_of(stream) == Backend::Cuda;
  int groups = ceil_div(lines, kTileLines);
  // On an H200 (bench/geometry.py): many share the depth where each
  // core has a threadgroup at most. By the weight alone, for the order of sums.
  int cores = device_limits(stream).cores;
  int simds = groups > cores                  ? 4
      : groups <= cores / 4 || length >= 8192 ? 16
                                              : 8;
  simds = forced_simds ? forced_simds.load() : simds;
  auto& launch = plan.launch({"quantized_tiles", one_tile ? 1 : 2, simds});
  launch.set(K::whole, length % step == 0);
  launch.set(K::no_tail, true);
  launch.set(K::scattered, false);
  launch.set(K::words_staged, staged);
  launch.set(K::linear_bits, form.bits);
  launch.set(K::linear_group_size, form.group_size);
  launch.set(K::linear_aligned, aligned);
  bind_rows(launch, K::x, x);
  bind_rows(launch, K::residual, residual);
  launch.set(K::w, w);
  launch.set(K::scales, *scales);
  launch.set(K::zeros, *zeros);
  launch.set(K::y, y);
  launch.set(K::lines, lines);
  launch.set(K::rows, rows);
  launch.set(K::length, length);
  launch.groups[0] = groups;
  launch.groups[1] = ceil_div(rows, one_tile ? 8 : 16);
  launch.group[0] = Geometry::kSimdSize * simds;
  bool few = one_tile && !float32; // registers
  launch.threads_per_core = few || simds == 16 ? 512 : 256;
  launch.staged_bytes = staged ? kTileLines * simds * kStepBytes : 0;
  return plan;
}

} // namespace mlx_norms
