// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/persistent_loops.h"

#include "kernels/interface.h"

#include <algorithm>

#include "csrc/gpu/integers.h"

namespace mlx_norms {

namespace {

// Enough rows per persistent loop that its row of partial sums is small
// compared to what it reads.
constexpr int kMinRowsPerLoop = 16;
constexpr int kMaxRowsPerLoop = 128; // they are added up one by one

// Fewer where a GPU would have cores without a loop: then the time is that of a
// loop's rows, one after another. Apple's GPUs have fewer cores, and a row of
// partial sums for two of x is much of what they read; what one loop takes
// needs no second launch there.
int min_rows_per_loop(
    int rows,
    int rows_of_head,
    const DeviceLimits& limits,
    Backend backend) {
  int min = backend == Backend::Cuda    ? 2
      : rows_of_head <= kMinRowsPerLoop ? kMinRowsPerLoop
                                        : 4;
  return std::clamp(ceil_div(rows, limits.cores), min, kMinRowsPerLoop);
}

} // namespace

PersistentLoops::PersistentLoops(
    int rows,
    int heads,
    const Geometry& geometry,
    const DeviceLimits& limits,
    Backend backend)
    : heads(heads) {
  int rows_of_head = rows / heads;
  int rows_at_once = geometry.rows_per_simd();
  int at_once = std::max(limits.loops(geometry.simds) / heads, 1);
  int min = min_rows_per_loop(rows, rows_of_head, limits, backend);
  int iterations = ceil_div(rows_of_head, at_once * rows_at_once);
  rows_per_loop = rows_at_once *
      std::clamp(iterations, ceil_div(min, rows_at_once), kMaxRowsPerLoop);
  count = heads * ceil_div(rows_of_head, rows_per_loop);
}

Cluster::Cluster(
    int64_t elements,
    int sums,
    const Geometry& geometry,
    const PersistentLoops& loops,
    const DeviceLimits& limits) {
  constexpr int64_t kMinElements = 1 << 22;
  constexpr int kMax = 2; // with four, fewer groups run at once
  int vectors = geometry.vectors * sums;
  int needed =
      vectors * geometry.width * int{sizeof(float)} * geometry.group_size();
  bool alone = elements < kMinElements || vectors == 0 || geometry.looped ||
      geometry.simds == 1 || loops.heads > 1 ||
      loops.count < limits.cores / 2 || needed > limits.staged_bytes;
  if (!alone && limits.cluster > 1) {
    size = std::min(limits.cluster, kMax);
    bytes = needed;
  }
}

Stages::Stages(
    const Geometry& geometry,
    int length,
    std::initializer_list<const RowOperand*> rows,
    std::initializer_list<const RowOperand*> of_weights,
    int max_bytes) {
  constexpr int kMaxStages = 2;
  int width = geometry.width;
  if (geometry.looped || length % width != 0) {
    return;
  }
  int row = geometry.row_bytes() * geometry.loops_per_group();
  int stage = 0;
  for (auto* of : rows) {
    if (of && !can_fetch(*of, width)) {
      return;
    }
    stage += of ? row : 0;
  }
  count = std::min(max_bytes / stage, kMaxStages);
  bytes = count * stage;
  for (auto* weight : of_weights) {
    if (!weight) {
      continue;
    }
    if (count == 0 || !can_fetch(*weight, width) || bytes + row > max_bytes) {
      break; // those that are staged come first
    }
    bytes += row;
    ++weights;
  }
}

Launch sum_partials(
    int heads,
    int count, // rows of partial sums per head
    int length,
    const std::optional<array>& weight_partials,
    const array* weight_gradient,
    const std::optional<array>& bias_partials,
    const array* bias_gradient) {
  using K = kernels::sum_partials;
  constexpr int kColumnsPerGroup = 32;
  constexpr int kMany = 256; // rows, for which a few threads take long
  Launch launch(KernelName("sum_partials"));
  launch.set(K::sums_weight, weight_gradient != nullptr);
  launch.set(K::sums_bias, bias_gradient != nullptr);
  auto type = [](const array* a) { return a ? float_type(a->dtype()) : 0; };
  launch.set(K::weight_gradient_type, type(weight_gradient));
  launch.set(K::bias_gradient_type, type(bias_gradient));
  if (weight_gradient) {
    launch.set(K::weight_partials, *weight_partials);
    launch.set(K::weight_gradient, *weight_gradient);
  }
  if (bias_gradient) {
    launch.set(K::bias_partials, *bias_partials);
    launch.set(K::bias_gradient, *bias_gradient);
  }
  int columns = heads * length;
  launch.set(K::count, count);
  launch.set(K::columns, columns);
  launch.groups[0] = ceil_div(columns, kColumnsPerGroup);
  launch.groups[1] = (weight_gradient != nullptr) + (bias_gradient != nullptr);
  int simds = count > kMany ? 32 : 8;
  launch.group[0] = simds * Geometry::kSimdSize;
  return launch;
}

} // namespace mlx_norms
