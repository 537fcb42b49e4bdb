// Copyright © 2026 mlx_norms contributors

#pragma once

#include <atomic>

namespace mlx_norms {

// A node's part in merging equivalent nodes, as mx.compile does. It compares
// each pair of their outputs, but only in the first comparison of two nodes
// does it know which of them comes first. Later ones may merge the first into
// the second and fail with an IndexError. So a node that was found equivalent
// to one before it is not compared again.
class Merging {
 public:
  // Whether this node may be merged into the other, to which it is equal.
  bool into(const Merging& other) const {
    return !other.merged_.load(std::memory_order_relaxed) &&
        !merged_.exchange(true, std::memory_order_relaxed);
  }

 private:
  mutable std::atomic<bool> merged_ = false;
};

} // namespace mlx_norms
