// Copyright © 2026 mlx_norms contributors

#include "csrc/metal/library.h"
#include "csrc/outputs.h"
#include "csrc/plan/kernel_error.h"
#include "csrc/plan/launch_plan.h"
#include "mlx/allocator.h"
#include "mlx/backend/metal/device.h"

namespace mlx_norms {

namespace {

namespace metal = mx::metal;

// The kernel's name with its constants' values: MLX keeps pipelines by it.
std::string specialised_name(const Launch& launch) {
  auto name = launch.kernel.text();
  for (const auto& c : launch.constants) {
    name += '_' + std::to_string(c.index) + '_' + std::to_string(c.value);
  }
  return name;
}

MTL::ComputePipelineState* pipeline(
    metal::Device& device,
    const Launch& launch) {
  metal::MTLFCList constants;
  for (const auto& c : launch.constants) {
    // A bool is read from its lowest byte.
    auto type = c.is_bool ? MTL::DataTypeBool : MTL::DataTypeInt;
    constants.emplace_back(&c.value, type, c.index);
  }
  auto* library = kernel_library(device);
  try {
    return device.get_kernel(
        launch.kernel.text(), library, specialised_name(launch), constants);
  } catch (const std::exception& e) {
    throw KernelError(
        "[mlx_norms] Kernel " + launch.kernel.text() +
        " cannot be built: " + e.what());
  }
}

MTL::Size size(const std::array<uint32_t, 3>& n) {
  return MTL::Size(n[0], n[1], n[2]);
}

// MLX only asserts it, and a launch beyond the limit is dropped in silence.
void check_group_size(
    const Launch& launch,
    MTL::ComputePipelineState* pipeline) {
  auto threads = launch.group[0] * launch.group[1] * launch.group[2];
  auto most = pipeline->maxTotalThreadsPerThreadgroup();
  if (threads > most) {
    throw KernelError(
        "[mlx_norms] Kernel " + launch.kernel.text() +
        " needs threadgroups of " + std::to_string(threads) +
        " threads, and this GPU runs it with " + std::to_string(most) +
        " at most.");
  }
}

} // namespace

void allocate_new(mx::array& out, mx::Stream) {
  out.set_data(mx::allocator::malloc(out.nbytes()));
}

// Rows on their way wait in registers, and walks are enough to fill a large
// GPU. One specialisation takes few rows and many: its self-check is for both.
DeviceLimits device_limits(mx::Stream) {
  return {
      .slot_bytes = 0,
      .cores = 256,
      .simds_per_core = 32,
      .few_threads = 0,
      .cluster = 1,
      .matrix_units = false};
}

void encode(LaunchPlan plan) {
  auto& device = metal::device(plan.stream.device);
  auto& encoder = metal::get_command_encoder(plan.stream);
  // Before anything can throw: launches that were encoded will run.
  encoder.add_temporaries({plan.temporaries.begin(), plan.temporaries.end()});
  for (auto& launch : plan.launches) {
    auto* kernel = pipeline(device, launch);
    check_group_size(launch, kernel);
    encoder.set_compute_pipeline_state(kernel);
    for (const auto& in : launch.inputs) {
      encoder.set_input_array(in.array, in.index, in.offset);
    }
    for (auto& out : launch.outputs) {
      encoder.set_output_array(out.array, out.index, out.offset);
    }
    for (const auto& s : launch.scalars) {
      encoder.set_bytes(s.words.data(), s.count, s.index);
    }
    encoder.dispatch_threadgroups(size(launch.groups), size(launch.group));
  }
}

} // namespace mlx_norms
