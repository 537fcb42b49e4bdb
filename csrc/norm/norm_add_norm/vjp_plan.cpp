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
  NormAddNormVJPInputs in(op.norms, inputs.data());
  auto next = outputs.begin() + 2;
  Arrays to_x{outputs[0]}, to_sum{outputs[1]};
  if (op.post_weight) {
    to_x.push_back(*next++);
  }
  if (op.weight) {
    to_sum.push_back(*next++);
  }
  auto plan = op.of_sum().plan(in.of_sum().arrays(), to_sum, stream);
  auto of_x = in.of_x(outputs[1]).arrays();
  plan.append(op.of_x().plan(of_x, to_x, stream));
  return plan;
}

} // namespace

bool NormAddNormVJP::suits(const Arrays& inputs, mx::Stream stream) const {
  if (!has_gpu_kernels(stream)) {
    return false;
  }
  NormAddNormVJPInputs in(norms, inputs.data());
  auto geometry = geometry_of(in.sum, stream);
  int max = backend_of(stream) == Backend::Cuda ? 24 : 8; // elements
  // One geometry is for rows of one type.
  return !geometry.looped && geometry.width * geometry.vectors <= max &&
      in.x.itemsize() == in.sum.itemsize();
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
  NormAddNormVJPInputs in(norms, inputs.data());
  auto next = outputs.begin();
  const auto& x_gradient = *next++;
  const auto& sum_gradient = *next++;
  auto* of_post_weight = post_weight ? &*next++ : nullptr;
  auto* of_weight = weight ? &*next++ : nullptr;

  int length = in.x.shape(-1);
  if (length == 0) {
    return plan;
  }
  int rows = row_count(in.x);
  auto backend = backend_of(stream);
  auto geometry = geometry_of(in.sum, stream);
  int width = geometry.width;
  auto limits = device_limits(stream);
  PersistentLoops loops(rows, 1, geometry, limits, backend);
  Cluster cluster(in.x.size(), post_weight + weight, geometry, loops, limits);
  int rows_of_partials = ceil_div(loops.count, cluster.size);
  auto partials = [&](const mx::array* gradient) -> OptionalArray {
    return gradient ? std::optional(plan.temporary(
                          {std::max(rows_of_partials, 1), length}, mx::float32))
                    : std::nullopt;
  };
  auto post_weight_partials = partials(of_post_weight);
  auto weight_partials = partials(of_weight);

  if (rows > 0) {
    auto x = read_rows(in.x, width, plan);
    auto sum = read_rows(in.sum, width, plan);
    auto post_w = read_optional(in.post_weight, width, plan);
    auto w = read_optional(in.weight, width, plan);
    auto cotangent = read_rows(in.cotangent, width, plan);
    auto sum_cotangent = read_rows(in.sum_cotangent, width, plan);
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
    launch.set(K::has_post_weight, norms.post_weight);
    launch.set(K::has_weight, norms.weight);
    launch.set(K::has_weight_offset, norms.weight_offset != 0.0f);
    launch.set(K::clamped_sum, norms.clamp && in.sum.dtype() == mx::float16);
    launch.set(K::want_post_weight, post_weight);
    launch.set(K::want_weight, weight);
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
    bind_rows(launch, K::x_gradient, &x_gradient, width);
    bind_rows(launch, K::sum_gradient, &sum_gradient, width);
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
