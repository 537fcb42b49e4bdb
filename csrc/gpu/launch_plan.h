// Copyright © 2026 mlx_norms contributors
//
// What a GPU will run, as plain values. Backends differ only in how they encode
// it.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <list>
#include <string>
#include <type_traits>

#include "csrc/common/types.h"
#include "csrc/gpu/interface.h"

namespace mlx_norms {

// A kernel's name: its family, and the numbers it is instantiated for. It has
// no padding, as its bytes are hashed (csrc/gpu/specialization.cpp).
struct KernelName {
  const char* family; // a literal
  int32_t first;      // 0: none
  int16_t second;
  int16_t third;

  KernelName(const char* family, int first = 0, int second = 0, int third = 0)
      : family(family),
        first(first),
        second(static_cast<int16_t>(second)),
        third(static_cast<int16_t>(third)) {}

  bool operator==(const KernelName&) const = default;

  // The family and its numbers, as in norm_vjp_8_1_256.
  std::string text() const {
    std::string name = family;
    for (int number : {first, int{second}, int{third}}) {
      if (number != 0) {
        name += '_' + std::to_string(number);
      }
    }
    return name;
  }
};

// One launch of a kernel, with its function constants and arguments: inputs,
// outputs, and what it takes by value, which is bound together.
struct Launch {
  struct ConstantValue {
    int index;
    int32_t value;
    bool is_bool;
  };
  struct Array {
    int index;
    mx::array array;
    int64_t offset; // in bytes

    Array(int index, const mx::array& array, int64_t offset)
        : index(index),
          array(array),
          offset(offset) {}
  };
  using Layout = std::array<int32_t, 6>; // the kernels' RowLayout

  // Stored inline: most calls are one launch, whose cost on the host matters.
  KernelName kernel;
  mx::SmallVector<ConstantValue, 48> constants;
  mx::SmallVector<Array, 6> inputs;
  mx::SmallVector<Array, 4> outputs;
  mx::SmallVector<uint32_t, 80> words;
  std::bitset<128> words_set;
  int layouts = 0;                            // with which the words end
  std::array<uint32_t, 3> groups = {1, 1, 1}; // threadgroups in the grid
  std::array<uint32_t, 3> group = {1, 1, 1};  // threads in each
  uint32_t staged_bytes = 0; // of threadgroup memory besides the kernel's own
  uint32_t cluster = 1;      // threadgroups per cluster, along x
  // A core's registers must suffice for so many; Metal decides this itself.
  uint32_t threads_per_core = 512;

  explicit Launch(KernelName kernel) : kernel(kernel) {}

  void set(Constant<bool> constant, bool value) {
    constants.push_back({constant.index, value, true});
  }
  void set(Constant<int32_t> constant, int32_t value) {
    constants.push_back({constant.index, value, false});
  }
  void set(Input argument, const mx::array& array, int64_t offset = 0) {
    inputs.emplace_back(argument.index, array, offset);
  }
  void set(Output argument, const mx::array& array, int64_t offset = 0) {
    outputs.emplace_back(argument.index, array, offset);
  }
  template <typename T>
  void set(Scalar<T> argument, std::type_identity_t<T> value) {
    put(argument.place, std::array{std::bit_cast<uint32_t>(value)});
  }
  void set(Words argument, const std::array<int32_t, 6>& values) {
    put(argument.place, std::bit_cast<std::array<uint32_t, 6>>(values));
  }

 private:
  template <size_t n>
  void put(int place, const std::array<uint32_t, n>& values) {
    if (words.size() < place + n) {
      words.resize(place + n, 0);
    }
    std::ranges::copy(values, words.begin() + place);
    words_set.set(place);
  }
};

// Gives `out` one of these buffers (see take_buffer), or else new memory of the
// stream's device. Defined by each backend.
namespace gpu {
void allocate(
    array& out,
    mx::Stream stream,
    std::initializer_list<const array*> from = {});
} // namespace gpu

struct LaunchPlan {
  mx::Stream stream;
  mx::SmallVector<Launch, 1> launches;
  // Allocated for the launches, by temporary(), and kept until they have run.
  std::list<mx::array> temporaries;
  // Views of inputs, which MLX keeps. None is a temporary: Metal's command
  // buffers do not wait for those that write a temporary's memory.
  std::list<mx::array> views;

  explicit LaunchPlan(mx::Stream stream) : stream(stream) {}

  // Adds a launch, to be filled in before the next one is added.
  Launch& launch(KernelName kernel) {
    launches.emplace_back(kernel);
    return launches.back();
  }

  // Adds another plan's launches after these.
  void append(LaunchPlan plan) {
    for (auto& launch : plan.launches) {
      launches.push_back(std::move(launch));
    }
    temporaries.splice(temporaries.end(), plan.temporaries);
    views.splice(views.end(), plan.views);
  }

  // An uninitialized array that lives as long as the launches.
  const mx::array& temporary(mx::Shape shape, mx::Dtype dtype) {
    mx::array a(std::move(shape), dtype, nullptr, {});
    gpu::allocate(a, stream);
    return temporaries.emplace_back(std::move(a));
  }
};

// Adds the plan's launches to its stream. Defined by each backend.
void encode(LaunchPlan plan);

struct DeviceLimits {
  int staged_bytes; // per launch
  int cores;
  int simds_per_core;
  int few_threads;   // a launch of so many takes as long as one thread
  int cluster;       // most threadgroups per cluster
  bool matrix_units; // for kernels/matmul/cuda/tiles.h
  // On Metal, of a product in one launch (csrc/gpu/choices.h).
  int product_rows = 0;
  int product_simds = 0;

  // How many persistent loops of `simds` SIMD-groups run at once.
  int loops(int simds) const {
    return cores * std::max(simds_per_core / simds, 1);
  }
};

// Defined by each backend.
DeviceLimits device_limits(mx::Stream stream);

// Whether products of tiles are those of CUDA's matrix units; for tests also
// where there are none.
bool multiplies_by_tiles(mx::Stream stream);
void set_tiles_anywhere(bool anywhere);

// Whether a launch takes as long as one of its threads.
inline bool has_few_threads(const Launch& launch, mx::Stream stream) {
  return int64_t{launch.groups[0]} * launch.group[0] <=
      device_limits(stream).few_threads;
}

} // namespace mlx_norms
