// Copyright © 2026 mlx_norms contributors

#include "csrc/cuda/driver.h"
#include "csrc/cuda/imports.h"
#include "csrc/cuda/module.h"
#include "csrc/plan/kernel_error.h"
#include "csrc/plan/launch_plan.h"

namespace mlx_norms {

namespace {

namespace cu = mx::cu;

constexpr int kBuffers = 31; // as many as Metal has

// A launch's arguments as the driver takes them: the address of each value. The
// launch holds its scalars and must outlive them.
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
      bound_[s.index] = s.words.data();
    }
    int n = 0;
    for (const auto& parameter : text.parameters) {
      auto* value = bound_[parameter.index];
      addresses_[n++] = const_cast<void*>(value ? value : kUnbound);
    }
  }

  void** addresses() {
    return addresses_;
  }

 private:
  void put(const Launch::Array& a) {
    auto* buffer = static_cast<const cu::CudaBuffer*>(a.array.buffer().ptr());
    auto* data = static_cast<char*>(buffer->data) + a.array.offset() + a.offset;
    pointers_[a.index] = data;
    bound_[a.index] = &pointers_[a.index];
  }

  // Null and zero, for what the launch does not bind.
  alignas(8) static constexpr uint32_t kUnbound[6] = {};

  const void* bound_[kBuffers] = {}; // by buffer index
  char* pointers_[kBuffers];
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
        "[mlx_norms] Kernel " + launch.kernel.text() +
        " cannot be launched: " + e.what());
  }
}

} // namespace

DeviceLimits device_limits(mx::Stream stream) {
  return cuda::limits_of(stream.device.index);
}

void encode(LaunchPlan plan) {
  auto& encoder = cu::get_command_encoder(plan.stream);
  if (!plan.temporaries.empty()) {
    // Before anything can throw: launches that were added will run.
    encoder.add_completed_handler(
        [temporaries = std::move(plan.temporaries)] {});
  }
  for (const auto& launch : plan.launches) {
    add_launch(launch, plan.stream.device.index, encoder);
  }
}

} // namespace mlx_norms
