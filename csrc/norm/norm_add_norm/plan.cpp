// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "kernels/interface.h"

namespace mlx_norms {

LaunchPlan NormAddNorm::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) const {
  using K = kernels::norm_add_norm;
  LaunchPlan plan(stream);
  NormAddNormInputs in(spec, inputs.data());
  if (in.x.size() == 0) {
    return plan;
  }
  const auto& normalized = outputs[0];
  const auto& sum = outputs[1];
  int length = in.x.shape(-1);
  auto backend = backend_of(stream);
  auto geometry =
      geometry_for(RowKernel::Forward, length, sum.itemsize(), backend);
  int width = geometry.width;
  auto x = std::optional(read_rows(in.x, width, plan));
  auto residual = std::optional(read_rows(in.residual, width, plan));
  auto post_weight = read_optional(in.post_weight, width, plan);
  auto weight = read_optional(in.weight, width, plan);
  std::optional<RowOperand> factor;
  if (in.factor) {
    factor = read_broadcast(*in.factor, in.x, width, plan);
  }
  int rows = row_count(in.x);

  int max_threads = max_threads_of(RowKernel::Forward, geometry, backend);
  auto& launch =
      plan.launch({"norm_add_norm", width, geometry.vectors, max_threads});
  launch.set(K::center, false);
  launch.set(K::l2, false);
  launch.set(K::eps_bounds, false);
  bind_geometry<K>(launch, geometry, length);
  launch.set(K::has_post_weight, spec.post_weight);
  launch.set(K::has_weight, spec.weight);
  launch.set(K::has_weight_offset, spec.weight_offset != 0.0f);
  launch.set(K::clamp_sum, spec.clamp && sum.dtype() == mx::float16);
  launch.set(K::round_early, !spec.late());
  launch.set(K::has_factor, spec.factor);
  launch.set(K::has_number, spec.number != 1.0f);
  launch.set(
      K::round_factored,
      !spec.late() && spec.is_factored() &&
          (!in.factor || product_keeps(in.x.dtype(), *in.factor)));
  bind_rows(launch, K::x, x);
  bind_rows(launch, K::residual, residual);
  bind_rows(launch, K::post_weight, post_weight);
  bind_rows(launch, K::weight, weight);
  bind_rows(launch, K::factor, factor);
  bind_rows(launch, K::normalized, &normalized, width);
  bind_rows(launch, K::sum, &sum, width);
  launch.set(K::rows, rows);
  launch.set(K::length, length);
  launch.set(K::eps, spec.eps);
  launch.set(K::weight_offset, spec.weight_offset);
  launch.set(K::number, spec.number);
  launch.groups[0] = ceil_div(rows, geometry.rows_per_group());
  launch.group[0] = geometry.group_size();

  // Four rows of many floats do not fit in Metal's registers.
  bool fits = backend == Backend::Cuda || width == 8 ||
      (geometry.vectors <= 4 && max_threads <= 512);
  bool few = fits && !geometry.looped && has_few_threads(launch, stream);
  launch.set(K::fetch_first, few);
  if (!few) {
    // Two rows are held, packed if they can be (kernels/norm/held_row.h).
    launch.threads_per_core = width == 8 && geometry.vectors <= 2 ? 1536 : 1024;
  }
  return plan;
}

} // namespace mlx_norms
