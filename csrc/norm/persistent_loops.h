// Copyright © 2026 mlx_norms contributors
//
// How gradients divide rows among persistent loops
// (kernels/norm/persistent_loop.h), and what these loops keep in threadgroup
// memory.

#pragma once

#include <algorithm>
#include <initializer_list>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"

namespace mlx_norms {

struct PersistentLoops {
  int heads;
  int rows_per_loop;
  int count;

  PersistentLoops(
      int rows,
      int heads,
      const Geometry& geometry,
      const DeviceLimits& limits,
      Backend backend);
};

// How many threadgroups add up their partial sums before they store them, and
// the bytes of threadgroup memory that each needs for that. Such launches cost
// more time on the host, so only large ones are clustered.
struct Cluster {
  int size = 1;
  int bytes = 0;

  // `sums` rows of partial sums are taken over x, which has so many elements.
  Cluster(
      int64_t elements,
      int sums,
      const Geometry& geometry,
      const PersistentLoops& loops,
      const DeviceLimits& limits);
};

// How many rows of each array are staged, and how many of the weights are. None
// are if vectors cannot be fetched, or rows are looped.
struct Stages {
  int count = 0;
  int weights = 0;
  int bytes = 0;

  // Stages of rows and weights; absent ones are null.
  Stages(
      const Geometry& geometry,
      int length,
      std::initializer_list<const RowOperand*> rows,
      std::initializer_list<const RowOperand*> weights,
      int max_bytes);

  // Whether weights that are not staged fit in registers beside sums: with
  // stages only if each thread has 128.
  bool leaves_registers(const Geometry& geometry) const {
    return count == 0 || geometry.group_size() <= 512;
  }
};

// Sets what kernel K's loops stage and how they divide rows.
template <typename K>
void bind_loops(
    Launch& launch,
    const Geometry& geometry,
    const PersistentLoops& loops,
    const Cluster& cluster,
    const Stages& staged) {
  launch.set(K::stages, staged.count);
  launch.set(K::staged_weights, staged.weights);
  launch.set(K::cluster, cluster.size);
  launch.set(K::rows_per_loop, loops.rows_per_loop);
  launch.set(K::loops, loops.count);
  launch.staged_bytes = std::max(staged.bytes, cluster.bytes);
  launch.cluster = cluster.size;
  launch.groups[0] = cluster.size *
      ceil_div(loops.count, geometry.loops_per_group() * cluster.size);
  launch.group[0] = geometry.group_size();
}

// The launch that adds up the rows of partial sums to parameters' gradients.
Launch sum_partials(
    int heads,
    int count, // rows of partial sums per head
    int length,
    const std::optional<array>& weight_partials,
    const array* weight_gradient,
    const std::optional<array>& bias_partials,
    const array* bias_gradient);

} // namespace mlx_norms
