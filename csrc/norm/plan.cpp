// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/plan.h"

#include "csrc/gpu/geometry.h"
#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"

namespace mlx_norms {

namespace {

// Function constants and buffers of kernels/norm/norm.metal.
enum Constant {
  kSimdsPerRow = 0,
  kLooped = 1,
  kCentre = 2,
  kWhole = 3,
  kHasWeight = 4,
  kHasBias = 5,
  kHasWeightOffset = 6,
  kWeightAccess = 7,
  kBiasAccess = 8,
  kHasResidual = 10,
  kClampSum = 11,
  kRoundEarly = 12,
  kPaired = 13,
  kHasWeight2 = 14,
  kFetchFirst = 15,
  kXAccess = 20,
  kResidualAccess = 21,
  kX2Access = 22,
  kWeight2Access = 23,
  kNormalisedAccess = 24,
  kSumAccess = 25,
  kNormalised2Access = 26
};
enum Buffer {
  kX = 0,
  kResidual = 1,
  kWeight = 2,
  kBias = 3,
  kX2 = 4,
  kWeight2 = 5,
  kNormalised = 6,
  kSum = 7,
  kNormalised2 = 8,
  kRows = 15,
  kRows2 = 16,
  kLength = 17,
  kEps = 18,
  kWeightOffset = 19
};
constexpr int kLayouts = 9; // an input's layout stands so much after it

} // namespace

LaunchPlan plan_norm(
    const NormSpec& spec,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs,
    mx::Stream stream) {
  LaunchPlan plan(stream);
  // The tensors with anything in them: where their inputs and outputs begin.
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
  auto geometry = geometry_for(
      /* backward= */ false, length, s.itemsize(), backend_of(stream));
  int width = geometry.width;

  auto rows = [&](const mx::array* a) -> std::optional<RowOperand> {
    return a ? std::optional(read_rows(*a, width, plan)) : std::nullopt;
  };
  auto parameter = [&](const mx::array* a) -> std::optional<RowOperand> {
    return a ? std::optional(read_parameter(*a, width, plan)) : std::nullopt;
  };
  auto x = rows(&in.x);
  auto residual = rows(in.residual);
  auto weight = parameter(in.weight);
  auto bias = parameter(in.bias);
  auto x2 = rows(second ? &second->in.x : nullptr);
  auto weight2 = parameter(second ? second->in.weight : nullptr);
  auto rows1 = row_count(in.x);
  auto rows2 = second ? row_count(second->in.x) : 0;

  auto& launch = plan.launch({"norm", width, geometry.vectors});
  launch.constant(kSimdsPerRow, geometry.simds);
  launch.constant(kLooped, geometry.looped);
  launch.constant(kCentre, spec.centre);
  launch.constant(kWhole, geometry.is_whole(length));
  launch.constant(kHasResidual, spec.residual);
  launch.constant(kHasWeight, spec.weight);
  launch.constant(kHasBias, spec.bias);
  launch.constant(kHasWeightOffset, spec.weight_offset != 0);
  launch.constant(kClampSum, spec.clamp && s.dtype() == mx::float16);
  launch.constant(kRoundEarly, spec.rounding == Rounding::Early);
  launch.constant(kPaired, second != nullptr);
  launch.constant(kHasWeight2, weight2.has_value());
  auto read = [&](int buffer, int access_constant, const auto& rows) {
    bind(launch, buffer, buffer + kLayouts, access_constant, rows);
  };
  read(kX, kXAccess, x);
  read(kResidual, kResidualAccess, residual);
  read(kWeight, kWeightAccess, weight);
  read(kBias, kBiasAccess, bias);
  read(kX2, kX2Access, x2);
  read(kWeight2, kWeight2Access, weight2);
  auto write = [&](int buffer, int access_constant, const mx::array* to) {
    launch.constant(access_constant, to ? write_access(*to, width) : 0);
    if (to) {
      launch.output(buffer, *to);
    }
  };
  write(kNormalised, kNormalisedAccess, &out[0]);
  write(kSum, kSumAccess, spec.residual ? &out[1] : nullptr);
  write(kNormalised2, kNormalised2Access, second ? second->out : nullptr);

  launch.scalar(kRows, rows1);
  launch.scalar(kRows2, rows2);
  launch.scalar(kLength, length);
  launch.scalar(kEps, spec.eps);
  launch.scalar(kWeightOffset, spec.weight_offset);

  auto teams = static_cast<uint32_t>(rows1) + static_cast<uint32_t>(rows2);
  launch.groups[0] = ceil_div<uint32_t>(teams, geometry.teams_per_group());
  launch.group[0] = geometry.group_size();

  bool few = !geometry.looped &&
      int64_t{launch.groups[0]} * launch.group[0] <=
          device_limits(stream).few_threads;
  launch.constant(kFetchFirst, few);
  if (!few) {
    // Packed rows take few registers (kernels/norm/held_row.h).
    launch.threads_per_core = width == 8 ? 1536 : 1024;
  }
  return plan;
}

} // namespace mlx_norms
