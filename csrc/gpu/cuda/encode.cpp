// Copyright © 2026 mlx_norms contributors

#include <algorithm>
#include <cstring>

#include "csrc/common/kernel_error.h"
#include "csrc/gpu/cuda/cluster_graph.h"
#include "csrc/gpu/cuda/driver.h"
#include "csrc/gpu/cuda/imports.h"
#include "csrc/gpu/cuda/module.h"
#include "csrc/gpu/launch_plan.h"
#include "csrc/gpu/recorded.h"

namespace mlx_norms {

namespace {

namespace cu = mx::cu;

// A launch's arguments for the driver: the addresses of the kernel's two
// structures. What the launch does not bind is null or zero.
class Arguments {
 public:
  Arguments(const Launch& launch, const cuda::Kernel& kernel)
      : kernel_(kernel),
        addresses_{values_, values_ + kernel.layouts} {
    auto bytes = launch.words.size() * sizeof(uint32_t);
    std::memcpy(values_ + kernel.words, launch.words.data(), bytes);
  }

  void put(int index, const array& a, int64_t offset) {
    auto* buffer = static_cast<const cu::CudaBuffer*>(a.buffer().ptr());
    auto* data = static_cast<char*>(buffer->data) + a.offset() + offset;
    if (int at = kernel_.offsets[index]; at >= 0) {
      std::memcpy(values_ + at, &data, sizeof(data));
    }
  }

  void** addresses() {
    return addresses_;
  }

 private:
  const cuda::Kernel& kernel_;
  alignas(8) char values_[cuda::kArgumentBytes] = {};
  void* addresses_[2];
};

bool reads(const Launch& launch, const mx::array& array) {
  return std::any_of(
      launch.inputs.begin(), launch.inputs.end(), [&](const auto& in) {
        return in.array.buffer().ptr() == array.buffer().ptr();
      });
}

// MLX orders a launch after those that wrote its inputs, not after those that
// read a buffer that it overwrites, such as a donated one. So it also waits for
// an output of each such reader.
void order_after_readers(
    const LaunchPlan& plan,
    size_t index,
    cu::CommandEncoder& encoder) {
  for (size_t i = 0; i < index; ++i) {
    const auto& earlier = plan.launches[i];
    for (const auto& out : plan.launches[index].outputs) {
      if (reads(earlier, out.array)) {
        encoder.set_input_array(earlier.outputs[0].array);
      }
    }
  }
}

// Its arrays have been given to the encoder.
void add_kernel(
    const Launch& launch,
    const cuda::Kernel& kernel,
    Arguments& arguments,
    cu::CommandEncoder& encoder) {
  const auto& [groups_x, groups_y, groups_z] = launch.groups;
  const auto& [x, y, z] = launch.group;
  try {
    if (launch.cluster > 1) {
      cuda::ClusterGraph graph(launch, kernel.function, arguments.addresses());
      encoder.add_graph_node(graph.get());
      return;
    }
    encoder.add_kernel_node_raw(
        kernel.function,
        dim3{groups_x, groups_y, groups_z},
        dim3{x, y, z},
        dim3{1, 1, 1},
        launch.staged_bytes,
        arguments.addresses());
  } catch (const std::exception& e) {
    throw KernelError(
        "[mlx_norms] Kernel " + launch.kernel.text() +
        " cannot be launched: " + e.what());
  }
}

void add_launch(const Launch& launch, int device, cu::CommandEncoder& encoder) {
  const auto& kernel = cuda::kernel_for(launch, device);
  Arguments arguments(launch, kernel);
  for (const auto& in : launch.inputs) {
    encoder.set_input_array(in.array);
    arguments.put(in.index, in.array, in.offset);
  }
  for (const auto& out : launch.outputs) {
    encoder.set_output_array(out.array);
    arguments.put(out.index, out.array, out.offset);
  }
  add_kernel(launch, kernel, arguments, encoder);
}

} // namespace

DeviceLimits device_limits(mx::Stream stream) {
  return cuda::limits_of(stream.device.index);
}

void encode(LaunchPlan plan) {
  auto& encoder = cu::get_command_encoder(plan.stream);
  if (!plan.temporaries.empty()) {
    // Before anything can throw: launches that were added will run anyway.
    encoder.add_completed_handler(
        [temporaries = std::move(plan.temporaries)] {});
  }
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    order_after_readers(plan, i, encoder);
    add_launch(plan.launches[i], plan.stream.device.index, encoder);
  }
}

const void* kernel_of(const Launch& launch, mx::Stream stream) {
  return &cuda::kernel_for(launch, stream.device.index);
}

void encode(
    const RecordedLaunch& recorded,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) {
  auto& encoder = cu::get_command_encoder(stream);
  const auto& kernel = *static_cast<const cuda::Kernel*>(recorded.kernel);
  Arguments arguments(recorded.launch, kernel);
  for (const auto& in : recorded.inputs) {
    const auto& a = recorded.array_of(in, inputs, outputs);
    encoder.set_input_array(a);
    arguments.put(in.index, a, in.offset);
  }
  for (const auto& out : recorded.outputs) {
    const auto& a = recorded.array_of(out, inputs, outputs);
    encoder.set_output_array(a);
    arguments.put(out.index, a, out.offset);
  }
  add_kernel(recorded.launch, kernel, arguments, encoder);
}

} // namespace mlx_norms
