// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <string_view>

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/channels/channels.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/together.h"
#include "kernels/interface.h"

namespace mlx_norms {

namespace {

using RowOperands = PerOperand<std::optional<RowOperand>>;

RowOperands read_operands(
    const NormSpec& spec,
    const NormInputs& in,
    int width,
    LaunchPlan& plan) {
  RowOperands read;
  for (auto operand : spec.operands) {
    const auto& a = *in[operand];
    auto kind = kOperandTraits[operand].kind;
    read[operand] = has_shape_of_x(operand) ? read_rows(a, width, plan)
        : kind == OperandKind::Vector       ? read_parameter(a, width, plan)
        : operand == kFactor && spec.factor_of_sum
        ? RowOperand{&a, float_type(a.dtype()), {}} // one element
        : read_broadcast(a, in.x(), width, plan);
  }
  return read;
}

// The rows of a kernel that have operands' names.
template <typename K>
constexpr PerOperand<std::optional<Rows>> rows_by_operand() {
  PerOperand<std::optional<Rows>> found;
  for (int i = 0; i < kOperands; ++i) {
    for (const auto& [name, rows] : K::all_rows) {
      if (std::string_view(name) == kOperandTraits[i].name) {
        found.of[i] = rows;
      }
    }
  }
  return found;
}

// Adds the launch that normalizes a tensor.
void plan_tensor(
    const NormSpec& spec,
    const NormInputs& in,
    const array* out,
    LaunchPlan& plan) {
  using K = kernels::norm;
  auto stream = plan.stream;
  const auto& x = in.x();
  int length = x.shape(-1);
  bool has_sum = spec.has(kResidual), norm_first = spec.norm_first;
  const auto& s = has_sum ? out[1] : x;
  auto backend = backend_of(stream);
  auto geometry =
      geometry_for(RowKernel::Forward, length, s.itemsize(), backend);
  int width = geometry.width;

  auto read = read_operands(spec, in, width, plan);
  auto rows = row_count(x);

  bool early = spec.rounding == Rounding::Early;
  int max_threads = max_threads_of(RowKernel::Forward, geometry, backend);
  auto& launch = plan.launch({"norm", width, geometry.vectors, max_threads});
  launch.set(K::center, spec.center);
  launch.set(K::l2, spec.l2);
  launch.set(K::eps_bounds, spec.eps_bounds);
  bind_geometry<K>(launch, geometry, length);
  launch.set(K::norm_first, norm_first);
  launch.set(K::has_weight_offset, spec.weight_offset != 0.0f);
  launch.set(K::clamp_sum, spec.clamp && s.dtype() == mx::float16);
  launch.set(K::round_early, early);
  launch.set(
      K::round_product,
      early && spec.has(kScale) && spec.has(kShift) &&
          product_keeps(out[0].dtype(), *in[kScale]));
  launch.set(K::factor_of_sum, spec.factor_of_sum);
  launch.set(K::has_number, spec.factor != 1.0f);
  launch.set(K::has_alpha, spec.alpha != 1.0f);
  launch.set(
      K::round_factored,
      early && spec.is_factored() &&
          (!in[kFactor] || product_keeps(x.dtype(), *in[kFactor])));
  launch.set(K::gate_first, spec.gate_first);
  launch.set(K::activation, static_cast<int32_t>(spec.activation));
  launch.set(
      K::round_gated,
      early && spec.gate_first && product_keeps(x.dtype(), *in[kGate]));
  constexpr auto rows_of = rows_by_operand<K>();
  for (int i = 0; i < kOperands; ++i) {
    if (rows_of.of[i]) {
      bind_rows(launch, *rows_of.of[i], read.of[i]);
    }
  }
  bind_rows(launch, K::normalized, &out[0], width);
  bind_rows(launch, K::sum, has_sum ? &out[1] : nullptr, width);

  launch.set(K::rows, rows);
  launch.set(K::length, length);
  launch.set(K::eps, spec.eps);
  launch.set(K::weight_offset, spec.weight_offset);
  launch.set(K::number, spec.factor);
  launch.set(K::alpha, spec.alpha);

  launch.groups[0] = ceil_div<uint32_t>(rows, geometry.rows_per_group());
  launch.group[0] = geometry.group_size();

  // Two norms hold more: four rows of many floats do not fit in Metal's
  // registers.
  bool on_cuda = backend == Backend::Cuda;
  bool fits = !norm_first || on_cuda || width == 8 ||
      (geometry.vectors <= 4 && max_threads <= 512);
  launch.set(
      K::fetch_residual,
      norm_first && (on_cuda || width == 8 || max_threads < 1024));
  bool few = fits && !geometry.looped && has_few_threads(launch, stream);
  launch.set(K::fetch_first, few);
  if (!few) {
    // Packed rows need few registers (kernels/norm/held_row.h), unless those of
    // a sum of more than two are not whole: then vectors are not fetched alike.
    // A norm of a norm holds two rows.
    bool uneven =
        spec.operands.only(kOfSum).count() > 2 && !geometry.is_whole(length);
    bool many = geometry.vectors > 2 && (norm_first || uneven);
    launch.threads_per_core = width == 8 && !many ? 1536 : 1024;
  }
}

} // namespace

LaunchPlan Norm::plan(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) const {
  NormInputs in(spec.operands, inputs.data());
  if (spec.grouped) {
    return plan_groups(spec, in, outputs, stream);
  }
  if (spec.axis != -1) {
    return plan_channels(spec, in, outputs[0], stream);
  }
  LaunchPlan plan(stream);
  if (others.empty() && !spec.is_multiplied()) {
    if (inputs[0].size() > 0) {
      plan_tensor(spec, in, outputs.data(), plan);
    }
    return plan;
  }
  auto backend = backend_of(stream);
  std::vector<NormsTogether> launches;
  for_each_tensor([&](const Tensor& tensor) {
    const auto& x = inputs[tensor.input];
    NormedTensor of{
        tensor.spec,
        tensor.in(inputs),
        outputs[tensor.output],
        geometry_for(RowKernel::Forward, x.shape(-1), x.itemsize(), backend)};
    auto joins = [&](NormsTogether& norms) { return norms.add(of, backend); };
    if (x.size() > 0 && std::ranges::none_of(launches, joins)) {
      launches.emplace_back(of);
    }
  });
  for (const auto& norms : launches) {
    const auto& [spec, in, out, _] = norms.tensors[0];
    if (norms.tensors.size() > 1 || spec.is_multiplied()) {
      norms.plan(plan);
    } else {
      plan_tensor(spec, in, &out, plan);
    }
  }
  return plan;
}

} // namespace mlx_norms
