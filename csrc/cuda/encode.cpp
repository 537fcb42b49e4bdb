// Copyright © 2026 mlx_norms contributors

#include <cstring>

#include "csrc/cuda/driver.h"
#include "csrc/cuda/imports.h"
#include "csrc/cuda/module.h"
#include "csrc/plan/kernel_error.h"
#include "csrc/plan/launch_plan.h"

namespace mlx_norms {

namespace {

namespace cu = mx::cu;

constexpr int kBuffers = 31; // as many as Metal has

// A launch's arguments as the driver takes them: the address of each value.
class Arguments {
 public:
  Arguments(const Launch& launch, const cuda::KernelText& text) {
    for (const auto& in : launch.inputs) {
      put(in);
    }
    for (const auto& out : launch.outputs) {
      put(out);
    }
    for (const auto& s : launch.scalars) {
      std::memcpy(values_[s.index], s.words.data(), 4 * s.count);
    }
    int n = 0;
    for (const auto& parameter : text.parameters) {
      addresses_[n++] = values_[parameter.index];
    }
  }

  void** addresses() {
    return addresses_;
  }

 private:
  void put(const Launch::Array& a) {
    auto* buffer = static_cast<const cu::CudaBuffer*>(a.array.buffer().ptr());
    auto* data = static_cast<char*>(buffer->data) + a.array.offset() + a.offset;
    std::memcpy(values_[a.index], &data, sizeof(data));
  }

  // By buffer index; null and zero where nothing is bound.
  alignas(8) uint32_t values_[kBuffers][6] = {};
  void* addresses_[kBuffers];
};

void add_launch(const Launch& launch, int device, cu::CommandEncoder& encoder) {
  const auto& kernel = cuda::kernel_for(launch, device);
  for (const auto& in : launch.inputs) {
    encoder.set_input_array(in.array);
  }
  for (const auto& out : launch.outputs) {
    encoder.set_output_array(out.array);
  }
  Arguments arguments(launch, *kernel.text);
  const auto& [groups_x, groups_y, groups_z] = launch.groups;
  const auto& [x, y, z] = launch.group;
  try {
    encoder.add_kernel_node_raw(
        kernel.function,
        dim3{groups_x, groups_y, groups_z},
        dim3{x, y, z},
        dim3{1, 1, 1},
        launch.slot_bytes,
        arguments.addresses());
  } catch (const std::exception& e) {
    throw KernelError(
        "[mlx_norms] Kernel " + launch.kernel +
        " cannot be launched: " + e.what());
  }
}

} // namespace

DeviceLimits device_limits(mx::Stream stream) {
  return cuda::limits_of(stream.device.index);
}

void encode(LaunchPlan plan) {
  auto& encoder = cu::get_command_encoder(plan.stream);
  for (const auto& launch : plan.launches) {
    add_launch(launch, plan.stream.device.index, encoder);
  }
  if (!plan.temporaries.empty()) {
    encoder.add_completed_handler(
        [temporaries = std::move(plan.temporaries)] {});
  }
}

} // namespace mlx_norms
