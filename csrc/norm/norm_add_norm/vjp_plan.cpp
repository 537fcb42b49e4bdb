// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/norm/persistent_loops.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

// It holds as much as LayerNorm's gradients: a row of two arrays and two sums.
constexpr auto kKernel = RowKernel::CenteredBackward;

Geometry geometry_of(const mx::array& sum, mx::Stream stream) {
  return geometry_for(
      kKernel, sum.shape(-1), sum.itemsize(), backend_of(stream));
}

// The gradients of one norm after another.
LaunchPlan plan_of_two(
    const NormAddNormVJP& op,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) {
  Arrays to_x{outputs[0]}, to_sum{outputs[1]};
  for (auto weight : op.wanted) {
    auto& to = weight == kPostWeight ? to_x : to_sum;
    to.push_back(outputs[2 + op.wanted.index_of(weight)]);
  }
  auto sum = op.of_sum(inputs);
  auto plan = sum.op.plan(sum.inputs, to_sum, stream);
  auto x = op.of_x(inputs, outputs[1]);
  plan.append(x.op.plan(x.inputs, to_x, stream));
  return plan;
}

} // namespace

bool NormAddNormVJP::suits(const Arrays& inputs, mx::Stream stream) const {
  if (!has_gpu_kernels(stream)) {
    return false;
  }
  const auto &x = inputs[0], &sum = inputs[1];
  auto geometry = geometry_of(sum, stream);
  // One geometry is for rows of one type.
  return !geometry.looped && x.itemsize() == sum.itemsize() &&
      is_built(RowKernel::TwoBackward, geometry, backend_of(stream));
}

LaunchPlan NormAddNormVJP::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) const {
  using K = kernels::norm_add_norm_vjp;
  if (!suits(inputs, stream)) {
    // Longer rows than those for which a shapeless function was compiled.
    return plan_of_two(*this, inputs, outputs, stream);
  }
  LaunchPlan plan(stream);
  auto all = in(inputs);
  auto* of_post_weight = wanted.find(kPostWeight, outputs.data() + 2);
  auto* of_weight = wanted.find(kWeight, outputs.data() + 2);

  int length = inputs[0].shape(-1);
  if (length == 0) {
    return plan;
  }
  int rows = row_count(inputs[0]);
  auto backend = backend_of(stream);
  auto geometry = geometry_of(*all[kResidual], stream);
  int width = geometry.width;
  auto limits = device_limits(stream);
  PersistentLoops loops(rows, 1, geometry, limits, backend);
  Cluster cluster(inputs[0].size(), wanted.count(), geometry, loops, limits);
  int rows_of_partials = ceil_div(loops.count, cluster.size);
  auto partials = [&](const mx::array* gradient) -> OptionalArray {
    return gradient ? std::optional(plan.temporary(
                          {std::max(rows_of_partials, 1), length}, mx::float32))
                    : std::nullopt;
  };
  auto post_weight_partials = partials(of_post_weight);
  auto weight_partials = partials(of_weight);

  if (rows > 0) {
    auto x = read_rows(*all[kX], width, plan);
    auto sum = read_rows(*all[kResidual], width, plan);
    auto post_w = read_optional(all[kPostWeight], width, plan);
    auto w = read_optional(all[kWeight], width, plan);
    auto cotangent = read_rows(*all[kCotangent], width, plan);
    auto sum_cotangent = read_rows(*all[kSumCotangent], width, plan);
    Stages staged(
        geometry,
        length,
        {&sum, &cotangent, &sum_cotangent, &x},
        {pointer_to(w), pointer_to(post_w)},
        limits.staged_bytes);

    auto& launch = plan.launch(
        {"norm_add_norm_vjp",
         width,
         geometry.vectors,
         max_threads_of(kKernel, geometry, backend)});
    bind_geometry<K>(launch, geometry, length);
    bind_loops<K>(launch, geometry, loops, cluster, staged);
    launch.set(K::has_weight_offset, norms.weight_offset != 0.0f);
    launch.set(
        K::clamped_sum, norms.clamp && all[kResidual]->dtype() == mx::float16);
    launch.set(K::want_post_weight, wanted.has(kPostWeight));
    launch.set(K::want_weight, wanted.has(kWeight));
    launch.set(K::adjoining, true);
    launch.set(K::fetch_next, false); // the kernel fetches to stages only
    bool holds = backend == Backend::Cuda ? staged.leaves_registers(geometry)
                                          : geometry.vectors == 1; // tools/agx
    launch.set(K::hold_weight, holds);
    bind_rows(launch, K::x, x);
    bind_rows(launch, K::sum, sum);
    bind_rows(launch, K::post_weight, post_w);
    bind_rows(launch, K::weight, w);
    bind_rows(launch, K::cotangent, cotangent);
    bind_rows(launch, K::sum_cotangent, sum_cotangent);
    bind_rows(launch, K::x_gradient, &outputs[0], width);
    bind_rows(launch, K::sum_gradient, &outputs[1], width);
    if (post_weight_partials) {
      launch.set(K::post_weight_partials, *post_weight_partials);
    }
    if (weight_partials) {
      launch.set(K::weight_partials, *weight_partials);
    }
    launch.set(K::rows, rows);
    launch.set(K::length, length);
    launch.set(K::eps, norms.eps);
    launch.set(K::weight_offset, norms.weight_offset);
  }
  if (of_post_weight || of_weight) {
    plan.launches.push_back(sum_partials(
        1,
        rows_of_partials,
        length,
        weight_partials,
        of_weight,
        post_weight_partials,
        of_post_weight));
  }
  return plan;
}

} // namespace mlx_norms
