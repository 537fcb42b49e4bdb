// Copyright © 2026 mlx_norms contributors
//
// When a pass over the graph is left out, as those before it found nothing: a
// pass costs as much as a tenth of building the graph. What a pass changes is
// always read from the graph at hand; left out, it changes nothing.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "csrc/common/types.h"

namespace mlx_norms {

// A patched norm has been called in this thread: steps are alike if their norms
// are of the same shapes, dtypes and number.
void note_norm(const array& x);

// A thread's passes.
class VainPasses {
 public:
  // Whether this pass is to look at the graph of the norms noted since the
  // latest one. Of large steps alike that had nothing to fuse, only each eighth
  // is looked at, as weights may have been exchanged.
  bool looks_now();

  // About how many nodes this graph has: as many as that of the latest such
  // step.
  size_t nodes() const {
    return std::max(step_->nodes, kMinNodes);
  }

  // What the pass that did look has found, in a graph of so many nodes.
  void found(bool anything, size_t nodes);

 private:
  // Of a step whose graph is large, one or the other.
  static constexpr int kMinNorms = 8;
  static constexpr size_t kMinNodes = 256;
  static constexpr int kVain = 4;  // passes, until some are left out
  static constexpr int kAgain = 8; // then one in so many is not
  struct Step {
    uint64_t norms = 0; // a hash of them
    int vain = 0;
    int left_out = 0;
    size_t nodes = 0; // of the latest graph
  };
  std::array<Step, 64> steps_; // by the upper bits of the hash
  Step* step_ = nullptr;
};

} // namespace mlx_norms
