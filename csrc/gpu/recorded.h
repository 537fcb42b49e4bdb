// Copyright © 2026 mlx_norms contributors
//
// Plans that are encoded again. A call's plan depends on its op and on how its
// arrays lie in memory: one that was made before is found by that, and encoded
// with the arrays at hand. Each thread has its own, so there are no locks.

#pragma once

#include <array>
#include <memory>
#include <utility>

#include "csrc/gpu/launch_plan.h"

namespace mlx_norms {

// All that a plan depends on besides the op and the device's limits.
class CallKey {
 public:
  CallKey(const Arrays& inputs, const Arrays& outputs, mx::Stream stream);

  uint64_t hash() const {
    return hash_;
  }
  bool operator==(const CallKey& other) const {
    return hash_ == other.hash_ && words_ == other.words_;
  }

 private:
  void add(int64_t word);

  mx::SmallVector<int64_t, 48> words_;
  uint64_t hash_ = 0;
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

// Adds the launch to the stream, for these arrays. Defined by each backend.
void encode(
    const RecordedLaunch& recorded,
    const Arrays& inputs,
    const Arrays& outputs,
    mx::Stream stream);

// The kernel of a launch that has been encoded. Defined by each backend.
const void* kernel_of(const Launch& launch, mx::Stream stream);

// Those of one op's calls, a fixed number. A call is recorded when it is made
// again, as many are not.
template <typename Op>
class RecordedCalls {
 public:
  // Null: there is none.
  const RecordedLaunch* find(const Op& op, const CallKey& key) const {
    for (const auto& call : set_of(key).calls) {
      if (call && call->key == key && call->op == op) {
        return call->launch.get();
      }
    }
    return nullptr;
  }

  // Whether to record the call, which was not found.
  bool is_made_again(const CallKey& key) {
    auto& set = set_of(key);
    return std::exchange(set.not_found, key.hash()) == key.hash();
  }

  // In place of the oldest of its set, if that is full.
  void add(
      const Op& op,
      const CallKey& key,
      std::unique_ptr<RecordedLaunch> launch) {
    auto& set = set_of(key);
    set.calls[set.next++ % kWays] =
        std::make_unique<RecordedCall>(key, op, std::move(launch));
  }

 private:
  struct RecordedCall {
    CallKey key;
    Op op;
    std::unique_ptr<RecordedLaunch> launch;
  };
  static constexpr size_t kSets = 32;
  static constexpr size_t kWays = 4; // also of ops that differ in options alone
  struct Set {
    std::array<std::unique_ptr<RecordedCall>, kWays> calls;
    size_t next = 0;
    uint64_t not_found = 0; // hash of the latest call that was not found
  };

  const Set& set_of(const CallKey& key) const {
    return sets_[key.hash() % kSets];
  }
  Set& set_of(const CallKey& key) {
    return sets_[key.hash() % kSets];
  }

  std::array<Set, kSets> sets_;
};

// Forgets what all threads have recorded: a switch of geometries was set.
void forget_recorded_calls();

// How many launches this thread has encoded again, for tests.
int64_t& launches_encoded_again();

} // namespace mlx_norms
