// Copyright © 2026 mlx_norms contributors

#include "csrc/gpu/recorded.h"

#include <algorithm>
#include <atomic>

namespace mlx_norms {

namespace {

std::atomic<int64_t> switches_set = 0;

// The place of an array among these, if it is one of them.
std::optional<int> place_of(const array& a, const Arrays& among) {
  auto it = std::ranges::find(among, a.id(), &array::id);
  return it == among.end() ? std::nullopt
                           : std::optional<int>(it - among.begin());
}

// That of the array that a plan's view is of, if no other has its buffer.
std::optional<int> viewed_place(const array& view, const Arrays& inputs) {
  std::optional<int> place;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].buffer().ptr() == view.buffer().ptr()) {
      if (place) {
        return std::nullopt;
      }
      place = i;
    }
  }
  return place;
}

} // namespace

CallKey::CallKey(
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream) {
  add_device(stream);
  auto add_array = [&](const array& a) {
    constexpr int64_t kMaxAlignment = 16; // that a kernel asks for
    auto flags = a.flags();
    add(static_cast<int64_t>(a.dtype().val()) |
        a.offset() % kMaxAlignment << 8 | int64_t{flags.row_contiguous} << 16 |
        int64_t{flags.contiguous} << 17 | int64_t{flags.col_contiguous} << 18 |
        static_cast<int64_t>(a.ndim()) << 20);
  };
  for (const auto& a : inputs) {
    add_array(a);
    for (auto size : a.shape()) {
      add(size);
    }
    for (auto stride : a.strides()) {
      add(stride);
    }
  }
  // Their shapes follow from the op and its inputs.
  for (const auto& a : outputs) {
    add_array(a);
  }
}

CallKey::CallKey(const Arrays& inputs, mx::Stream stream) {
  add_device(stream);
  for (const auto& a : inputs) {
    add(static_cast<int64_t>(a.dtype().val()) |
        static_cast<int64_t>(a.ndim()) << 8);
    for (auto size : a.shape()) {
      add(size);
    }
  }
}

void CallKey::add_device(mx::Stream stream) {
  add(switches_set.load(std::memory_order_relaxed) << 8 | stream.device.index);
}

Arrays with_names_of_their_own(const Arrays& inputs) {
  auto named = inputs;
  for (size_t i = 1; i < named.size(); ++i) {
    if (std::any_of(named.begin(), named.begin() + i, [&](const array& a) {
          return a.id() == named[i].id();
        })) {
      array other(named[i].shape(), named[i].dtype(), nullptr, {});
      other.copy_shared_buffer(named[i]);
      named[i] = std::move(other);
    }
  }
  return named;
}

std::unique_ptr<RecordedLaunch> RecordedLaunch::of(
    const LaunchPlan& plan,
    const Arrays& inputs,
    const Arrays& outputs) {
  if (plan.launches.size() != 1 || !plan.temporaries.empty()) {
    return nullptr;
  }
  const auto& launch = plan.launches[0];
  auto recorded = std::make_unique<RecordedLaunch>(launch);
  for (const auto& in : launch.inputs) {
    auto offset = in.offset;
    auto place = place_of(in.array, inputs);
    if (auto out = place_of(in.array, outputs); !place && out) {
      place = inputs.size() + *out;
    }
    if (!place && (place = viewed_place(in.array, inputs))) {
      offset += in.array.offset() - inputs[*place].offset();
    }
    if (!place) {
      return nullptr;
    }
    recorded->inputs.push_back({in.index, *place, offset});
  }
  for (const auto& out : launch.outputs) {
    auto place = place_of(out.array, outputs);
    if (!place) {
      return nullptr;
    }
    recorded->outputs.push_back(
        {out.index, static_cast<int>(inputs.size()) + *place, out.offset});
  }
  recorded->kernel = kernel_of(launch, plan.stream);
  recorded->launch.inputs.clear();
  recorded->launch.outputs.clear();
  return recorded;
}

void forget_recorded_calls() {
  switches_set.fetch_add(1, std::memory_order_relaxed);
}

int64_t& launches_encoded_again() {
  static thread_local int64_t count = 0;
  return count;
}

} // namespace mlx_norms
