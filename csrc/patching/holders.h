// Copyright © 2026 mlx_norms contributors
//
// Who holds an array: MLX does not tell.

#pragma once

#include <memory>

#include "csrc/common/types.h"

namespace mlx_norms {

size_t count_holders(const array& a);

// Whether there is one holder: of a pending array, in general the node that
// uses it, or Python. A graph pass holds arrays itself.
bool is_held_once(const array& a);

// An array that is not kept by it.
class WeakArray {
 public:
  WeakArray() = default;
  explicit WeakArray(const array& a);

  OptionalArray get() const; // nullopt: it is gone

 private:
  std::weak_ptr<void> descriptor_;
};

} // namespace mlx_norms
