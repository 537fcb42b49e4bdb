// Copyright © 2026 mlx_norms contributors
//
// Rows in the form that every instruction set's kernels expect. Plain data
// only: kernels are compiled for instructions that this machine may lack, so
// they must not share inline code with the rest of the extension.

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

// Input rows. Strides are in elements; `step` is the stride between the
// elements of a row.
struct RowsIn {
  const void* data = nullptr;
  Float type = Float::f32;
  int64_t row_stride = 0;
  int64_t step = 1;
};

// Output rows, contiguous.
struct RowsOut {
  void* data = nullptr;
  Float type = Float::f32;
};

} // namespace mlx_norms::cpu
