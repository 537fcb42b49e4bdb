// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/plan.h"

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/modulation.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

std::optional<RowOperand> one_element(const mx::array& a) {
  return RowOperand{&a, float_type(a.dtype()), {}};
}

} // namespace

LaunchPlan plan_norm(
    const NormSpec& spec,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs,
    mx::Stream stream) {
  using K = kernels::norm;
  LaunchPlan plan(stream);
  // The tensors that are not empty: where their inputs and outputs begin.
  struct Tensor {
    NormInputs in;
    const mx::array* out;
  };
  mx::SmallVector<Tensor, 2> tensors;
  for (size_t i = 0, o = 0; i < inputs.size();
       i += spec.n_inputs(), o += spec.n_outputs()) {
    if (inputs[i].size() > 0) {
      tensors.push_back({NormInputs(spec, &inputs[i]), &outputs[o]});
    }
  }
  if (tensors.empty()) {
    return plan;
  }
  const auto& [in, out] = tensors[0];
  auto* second = tensors.size() > 1 ? &tensors[1] : nullptr;
  int length = in.x.shape(-1);
  const auto& s = spec.residual ? out[1] : in.x;
  auto backend = backend_of(stream);
  auto geometry =
      geometry_for(RowKernel::Forward, length, s.itemsize(), backend);
  int width = geometry.width;

  auto rows = [&](const mx::array* a) -> std::optional<RowOperand> {
    return a ? std::optional(read_rows(*a, width, plan)) : std::nullopt;
  };
  auto x = rows(&in.x);
  auto residual = rows(in.residual);
  auto weight = read_optional(in.weight, width, plan);
  auto bias = read_optional(in.bias, width, plan);
  auto broadcast = [&](const mx::array* a) -> std::optional<RowOperand> {
    return a ? std::optional(read_broadcast(*a, in.x, width, plan))
             : std::nullopt;
  };
  auto scale = broadcast(in.scale);
  auto shift = broadcast(in.shift);
  auto factor =
      spec.factor_of_sum ? one_element(*in.factor) : broadcast(in.factor);
  auto gate = broadcast(in.gate);
  auto x2 = rows(second ? &second->in.x : nullptr);
  auto weight2 =
      read_optional(second ? second->in.weight : nullptr, width, plan);
  auto rows1 = row_count(in.x);
  auto rows2 = second ? row_count(second->in.x) : 0;

  bool early = spec.rounding == Rounding::Early;
  int most_threads = most_threads_of(RowKernel::Forward, geometry, backend);
  auto& launch = plan.launch({"norm", width, geometry.vectors, most_threads});
  launch.set(K::center, spec.center);
  launch.set(K::l2, spec.l2);
  launch.set(K::eps_bounds, spec.eps_bounds);
  bind_geometry<K>(launch, geometry, length);
  launch.set(K::has_residual, spec.residual);
  launch.set(K::has_weight, spec.weight);
  launch.set(K::has_bias, spec.bias);
  launch.set(K::has_weight_offset, spec.weight_offset != 0);
  launch.set(K::clamp_sum, spec.clamp && s.dtype() == mx::float16);
  launch.set(K::round_early, early);
  launch.set(K::has_scale, spec.scale);
  launch.set(K::has_shift, spec.shift);
  launch.set(
      K::round_product,
      early && spec.scale && spec.shift &&
          product_keeps(out[0].dtype(), *in.scale));
  launch.set(K::has_factor, spec.factor);
  launch.set(K::factor_of_sum, spec.factor_of_sum);
  launch.set(K::has_number, spec.number != 1);
  launch.set(
      K::round_factored,
      early && spec.is_factored() &&
          (!in.factor || product_keeps(in.x.dtype(), *in.factor)));
  launch.set(K::has_gate, spec.gate);
  launch.set(K::gate_first, spec.gate_first);
  launch.set(K::activation, static_cast<int32_t>(spec.activation));
  launch.set(
      K::round_gated,
      early && spec.gate_first && product_keeps(in.x.dtype(), *in.gate));
  launch.set(K::paired, second != nullptr);
  launch.set(K::has_weight2, weight2.has_value());
  bind_rows(launch, K::x, K::x_layout, K::x_flags, x);
  bind_rows(
      launch, K::residual, K::residual_layout, K::residual_flags, residual);
  bind_rows(launch, K::weight, K::weight_layout, K::weight_flags, weight);
  bind_rows(launch, K::bias, K::bias_layout, K::bias_flags, bias);
  bind_rows(launch, K::scale, K::scale_layout, K::scale_flags, scale);
  bind_rows(launch, K::shift, K::shift_layout, K::shift_flags, shift);
  bind_rows(launch, K::factor, K::factor_layout, K::factor_flags, factor);
  bind_rows(launch, K::gate, K::gate_layout, K::gate_flags, gate);
  bind_rows(launch, K::x2, K::x2_layout, K::x2_flags, x2);
  bind_rows(launch, K::weight2, K::weight2_layout, K::weight2_flags, weight2);
  auto write = [&](Output to, Constant<int32_t> flags, const mx::array* a) {
    launch.set(flags, a ? output_flags(*a, width) : 0);
    if (a) {
      launch.set(to, *a);
    }
  };
  write(K::normalized, K::normalized_flags, &out[0]);
  write(K::sum, K::sum_flags, spec.residual ? &out[1] : nullptr);
  write(K::normalized2, K::normalized2_flags, second ? second->out : nullptr);

  launch.set(K::rows, rows1);
  launch.set(K::rows2, rows2);
  launch.set(K::length, length);
  launch.set(K::eps, spec.eps);
  launch.set(K::weight_offset, spec.weight_offset);
  launch.set(K::number, spec.number);

  auto all_rows = static_cast<uint32_t>(rows1) + static_cast<uint32_t>(rows2);
  launch.groups[0] = ceil_div<uint32_t>(all_rows, geometry.rows_per_group());
  launch.group[0] = geometry.group_size();

  bool few = !geometry.looped &&
      int64_t{launch.groups[0]} * launch.group[0] <=
          device_limits(stream).few_threads;
  launch.set(K::fetch_first, few);
  if (!few) {
    // Packed rows need few registers (kernels/norm/held_row.h), unless a row
    // with a factor is not whole: then its vectors are not fetched alike.
    bool uneven =
        spec.factor && geometry.vectors > 2 && !geometry.is_whole(length);
    launch.threads_per_core = width == 8 && !uneven ? 1536 : 1024;
  }
  return plan;
}

} // namespace mlx_norms
