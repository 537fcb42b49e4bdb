// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/together.h"

#include "csrc/gpu/integers.h"
#include "csrc/gpu/rows.h"
#include "csrc/norm/norm.h"
#include "kernels/interface.h"

namespace mlx_norms {

bool NormsTogether::add(const NormedTensor& tensor, Backend backend) {
  const auto& first = tensors[0];
  auto width = tensor.geometry.width;
  if (width != geometry.width) {
    return false;
  }
  if (mixed || tensor.length() != first.length()) {
    auto both = common_geometry(geometry, tensor.geometry, backend);
    if (!both ||
        first.geometry.is_scattered(first.length()) !=
            tensor.geometry.is_scattered(tensor.length())) {
      return false;
    }
    geometry = *both;
    mixed = true;
  }
  tensors.push_back(tensor);
  return true;
}

void NormsTogether::plan(LaunchPlan& plan) const {
  using K = kernels::rms_norms;
  constexpr Rows kX_[] = {K::x, K::x2, K::x3, K::x4};
  constexpr Rows kWeights[] = {K::weight, K::weight2, K::weight3, K::weight4};
  constexpr RowsWritten kY[] = {K::y, K::y2, K::y3, K::y4};
  constexpr Words kArrays[] = {K::array1, K::array2, K::array3, K::array4};

  const auto& spec = tensors[0].spec;
  auto backend = backend_of(plan.stream);
  int n = tensors.size();
  int width = geometry.width;
  int length = tensors[0].length();
  std::optional<RowOperand> x[kMaxTogether], weight[kMaxTogether];
  bool multiplied = false, offset = false;
  for (int i = 0; i < n; ++i) {
    const auto& of = tensors[i];
    x[i] = read_rows(of.in.x(), width, plan);
    weight[i] = read_optional(of.in[kWeight], width, plan);
    multiplied |= of.spec.is_multiplied();
    offset |= of.spec.weight_offset != 0.0f;
  }
  if (n == 1) {
    x[1] = x[0]; // bound, but no threadgroup's
  }

  int max_threads = max_threads_of(RowKernel::Forward, geometry, backend);
  auto& launch =
      plan.launch({"rms_norms", width, geometry.vectors, max_threads});
  launch.set(K::center, false);
  launch.set(K::l2, spec.l2);
  launch.set(K::eps_bounds, spec.eps_bounds);
  bind_geometry<K>(launch, geometry, length, mixed);
  launch.set(K::mixed_lengths, mixed);
  launch.set(K::round_early, spec.rounding == Rounding::Early);
  launch.set(K::has_weight_offset, offset);
  launch.set(K::has_multipliers, multiplied);
  int simds = geometry.group_size() / Geometry::kSimdSize;
  uint32_t groups = 0;
  for (int i = 0; i < int{kMaxTogether}; ++i) {
    bind_rows(launch, kX_[i], x[i]);
    bind_rows(launch, kWeights[i], weight[i]);
    bool bound = x[i].has_value();
    const auto& of = tensors[i < n ? i : 0];
    bind_rows(launch, kY[i], bound ? &of.out : nullptr, width);
    if (!bound) {
      continue;
    }
    auto rows = row_count(of.in.x());
    launch.set(
        kArrays[i],
        {static_cast<int32_t>(groups),
         rows,
         of.length(),
         of.geometry.simds * of.geometry.lanes,
         of.geometry.full_count(of.length()),
         std::bit_cast<int32_t>(float{of.spec.multiplier})});
    int at_once =
        of.geometry.simds > 1 ? 1 : simds * of.geometry.rows_per_simd();
    groups += i < n ? ceil_div<uint32_t>(rows, at_once) : 0;
  }
  launch.set(K::eps, spec.eps);
  launch.set(K::weight_offset, tensors[0].spec.weight_offset);
  launch.groups[0] = groups;
  launch.group[0] = geometry.group_size();

  bool few = !geometry.looped && has_few_threads(launch, plan.stream);
  launch.set(K::fetch_first, few);
  launch.set(K::fetch_residual, false);
  if (!few) {
    launch.threads_per_core = width == 8 ? 1536 : 1024; // as a norm alone
  }
}

} // namespace mlx_norms
