// Copyright © 2026 mlx_norms contributors
//
// Rows as the kernels of every instruction set take them. Plain data only: they
// are compiled for instructions that this machine may lack, so no inline code
// of theirs may be shared with the rest of the extension.

#pragma once

#include <cstdint>

namespace mlx_norms::cpu {

enum class Float : uint8_t { f32, f16, bf16 };

// Rows in float32 that the kernels work on (scratch, weights, biases, sums of
// gradients) are padded to a multiple of this.
static constexpr int64_t kRowMultiple = 32;

static constexpr int64_t padded(int64_t width) {
  return (width + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
}

// Rows to read. Strides are in elements; `step` lies between the elements of a
// row.
struct RowsIn {
  const void* data = nullptr;
  Float type = Float::f32;
  int64_t row_stride = 0;
  int64_t step = 1;
};

// Rows to write, contiguous.
struct RowsOut {
  void* data = nullptr;
  Float type = Float::f32;
};

} // namespace mlx_norms::cpu
