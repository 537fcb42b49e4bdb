// Copyright © 2026 mlx_norms contributors

#include <cstring>

#include "csrc/common/kernel_error.h"
#include "csrc/common/mlx_version.h"
#include "csrc/common/outputs.h"
#include "csrc/common/self_check.h"
#include "csrc/gpu/choices.h"
#include "csrc/gpu/geometry.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/metal/pipeline.h"
#include "csrc/gpu/recorded.h"
#include "kernels/interface.h"
#include "mlx/allocator.h"
#include "mlx/backend/metal/device.h"

namespace mlx_norms {

namespace {

// The choices for this GPU.
Choices choices() {
  static const int generation =
      mx::metal::device(mx::Device::gpu).get_architecture_gen();
  return choices_of(generation);
}

// Whether each SIMD-group has rows of its own, whichever threadgroup it is in.
bool has_rows_by_simd(const Launch& launch) {
  const std::pair<const char*, int> kFamilies[] = {
      {"norm", kernels::norm::simds_per_row.index},
      {"norm_rope", kernels::norm_rope::simds_per_row.index}};
  for (auto [family, index] : kFamilies) {
    if (std::strcmp(launch.kernel.family, family) == 0) {
      return std::ranges::any_of(launch.constants, [&](const auto& constant) {
        return constant.index == index && constant.value == 1;
      });
    }
  }
  return false;
}

// Those of its threadgroups, which few rows may be spread over more of.
uint32_t group_threads(const Launch& launch) {
  uint32_t all = launch.group[0];
  auto chosen = choices();
  uint32_t threads = chosen.group_threads;
  bool divides = threads > 0 && threads < all && all % threads == 0 &&
      threads % Geometry::kSimdSize == 0;
  bool few = divides && launch.groups[0] <= uint32_t(chosen.few_groups);
  return few && has_rows_by_simd(launch) ? threads : all;
}

MTL::Size size(const std::array<uint32_t, 3>& n) {
  return MTL::Size(n[0], n[1], n[2]);
}

// MLX only asserts this, and a launch beyond the limit is silently dropped.
void check_group_size(const Launch& launch, const Pipeline& pipeline) {
  auto threads = launch.group[0] * launch.group[1] * launch.group[2];
  if (threads > pipeline.max_threads) {
    throw KernelError(
        "[mlx_norms] Kernel " + launch.kernel.text() +
        " needs threadgroups of " + std::to_string(threads) +
        " threads, and this GPU runs it with " +
        std::to_string(pipeline.max_threads) + " at most.");
  }
}

// Its arrays have been bound.
void dispatch(const Launch& launch, mx::metal::CommandEncoder& encoder) {
  encoder.set_bytes(
      launch.words.data(), launch.words.size(), kernels::kWordsIndex);
  auto groups = launch.groups, group = launch.group;
  group[0] = group_threads(launch);
  groups[0] *= launch.group[0] / group[0];
  encoder.dispatch_threadgroups(size(groups), size(group));
}

} // namespace

void gpu::allocate(
    array& out,
    mx::Stream,
    std::initializer_list<const array*> from) {
  if (!kMetalWaitsForReads || !take_buffer(out, from)) {
    out.set_data(mx::allocator::malloc(out.nbytes()));
  }
}

// Rows are fetched ahead to registers, and there are enough loops for a large
// GPU. One specialization serves both few and many rows, so its self-check
// covers both.
DeviceLimits device_limits(mx::Stream) {
  auto chosen = choices();
  return {
      .staged_bytes = 0,
      .cores = 256,
      .simds_per_core = 32,
      .few_threads = chosen.few_threads,
      .cluster = 1,
      .matrix_units = false,
      .product_rows = chosen.product_rows,
      .product_simds = chosen.product_simds};
}

void encode(LaunchPlan plan) {
  // Before anything is encoded, which would run anyway: these can throw.
  mx::SmallVector<const Pipeline*, 4> pipelines;
  for (const auto& launch : plan.launches) {
    pipelines.push_back(&pipeline_for(launch));
    check_group_size(launch, *pipelines.back());
  }
  for (auto* pipeline : pipelines) {
    self_check::note_launch(pipeline);
  }
  auto& encoder = mx::metal::get_command_encoder(plan.stream);
  if (!plan.temporaries.empty()) {
    encoder.add_temporaries({plan.temporaries.begin(), plan.temporaries.end()});
  }
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    auto& launch = plan.launches[i];
    encoder.set_compute_pipeline_state(pipelines[i]->state);
    for (const auto& in : launch.inputs) {
      encoder.set_input_array(in.array, in.index, in.offset);
    }
    for (auto& out : launch.outputs) {
      encoder.set_output_array(out.array, out.index, out.offset);
    }
    dispatch(launch, encoder);
  }
}

const void* kernel_of(const Launch& launch, mx::Stream) {
  return &pipeline_for(launch);
}

void encode(
    const RecordedLaunch& recorded,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) {
  auto& encoder = mx::metal::get_command_encoder(stream);
  auto* pipeline = static_cast<const Pipeline*>(recorded.kernel);
  self_check::note_launch(pipeline);
  encoder.set_compute_pipeline_state(pipeline->state);
  for (const auto& in : recorded.inputs) {
    encoder.set_input_array(
        recorded.array_of(in, inputs, outputs), in.index, in.offset);
  }
  for (const auto& out : recorded.outputs) {
    auto a = recorded.array_of(out, inputs, outputs); // it takes no const one
    encoder.set_output_array(a, out.index, out.offset);
  }
  dispatch(recorded.launch, encoder);
}

} // namespace mlx_norms
