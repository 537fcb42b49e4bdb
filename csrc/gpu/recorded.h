// Copyright © 2026 mlx_norms contributors
//
// Plans that are encoded again. A call's plan depends on its op and on how its
// arrays lie in memory: one that was made before is found by that, and encoded
// with the arrays at hand. Each thread has its own, so there are no locks.

#pragma once

#include <algorithm>
#include <memory>

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// What a call has besides its op.
class CallKey {
 public:
  // All that a plan depends on, beside the device's limits.
  CallKey(const Arrays& inputs, const Arrays& outputs, mx::Stream stream);
  // The same but how arrays lie in memory, which pending ones do not know.
  CallKey(const Arrays& inputs, mx::Stream stream);

  uint64_t hash() const {
    return hash_ >> 32;
  }
  bool operator==(const CallKey& other) const {
    return hash_ == other.hash_ && n_ == other.n_ && n_ <= kMaxWords &&
        std::equal(words_, words_ + n_, other.words_);
  }

 private:
  static constexpr int kMaxWords = 96; // a call with more is like no other

  // The products are independent, and so taken at once.
  void add(int64_t word) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
    if (n_ < kMaxWords) {
      words_[n_] = word;
    }
    n_ += 1;
    hash_ += (static_cast<uint64_t>(word) + n_) * (kGolden * (2 * n_ + 1));
  }
  void add_device(mx::Stream stream);

  int n_ = 0;
  uint64_t hash_ = 0;
  int64_t words_[kMaxWords];
};

// A plan of one launch that has no arrays besides a node's inputs and outputs.
struct RecordedLaunch {
  struct Argument {
    int index;
    int place; // among the inputs, then the outputs
    int64_t offset;
  };
  Launch launch; // without arrays
  mx::SmallVector<Argument, 8> inputs;
  mx::SmallVector<Argument, 4> outputs;
  const void* kernel = nullptr; // the backend's

  const array& array_of(
      const Argument& argument,
      const Arrays& inputs,
      const Arrays& outputs) const {
    auto n = static_cast<int>(inputs.size());
    return argument.place < n ? inputs[argument.place]
                              : outputs[argument.place - n];
  }

  // Null if the plan is no such plan.
  static std::unique_ptr<RecordedLaunch>
  of(const LaunchPlan& plan, const Arrays& inputs, const Arrays& outputs);
};

// The arrays, of which one that is there twice has two names: a launch tells by
// its name which one it reads.
Arrays with_names_of_their_own(const Arrays& inputs);

// Adds the launch to the stream, for these arrays. Defined by each backend.
void encode(
    const RecordedLaunch& recorded,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

// The kernel of a launch, built at first use. Defined by each backend.
const void* kernel_of(const Launch& launch, mx::Stream stream);

// Forgets what all threads have recorded: a switch of geometries was set.
void forget_recorded_calls();

// How many launches this thread has encoded again, for tests.
int64_t& launches_encoded_again();

} // namespace mlx_norms
