// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/types.h"

namespace mlx_norms {

// How an array lies in memory, as far as kernels differ by that. By default it
// is dense and aligned.
struct MemoryLayout {
  int offset = 0;     // its first byte past a multiple of 16
  bool steps = false; // the elements of a row do not adjoin
  int axes = 0;       // of rows that do not adjoin
  int alignment = 16; // of these rows: the bytes, at most 16

  // Reads that of an evaluated array.
  static MemoryLayout of(const array& a);

  bool operator==(const MemoryLayout&) const = default;
};

// The same values in memory of this layout, with as many axes of rows as a has.
array laid_out(array a, const MemoryLayout& layout, mx::Stream s);

} // namespace mlx_norms
