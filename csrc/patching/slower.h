// Copyright © 2026 mlx_norms contributors
//
// The table of shapes at which mx.fast was measured faster than the kernels.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/common/backend.h"
#include "csrc/norm/spec.h"

namespace mlx_norms {

// Ranges are inclusive.
struct SlowerCell {
  std::string backend; // "cpu", "metal"
  std::string op;      // "rms", "layer", "add_rms", "add_layer"
  mx::Dtype dtype;
  int64_t rows_from, rows_to;
  int64_t length_from, length_to;
};

void set_slower_cells(const std::vector<SlowerCell>& cells);

// Whether `x` falls into a cell of the table.
bool is_slower(Backend backend, const NormSpec& spec, const mx::array& x);

} // namespace mlx_norms
