// Copyright © 2026 mlx_norms contributors

#pragma once

#include <algorithm>

#include "csrc/common/axes.h"

namespace mlx_norms::cpu {

// The rows of some arrays, in order, as runs: within a run each
// array's rows have a constant stride.
class RowRuns {
 public:
  // See row_axes.
  explicit RowRuns(std::initializer_list<const array*> arrays)
      : axes_(row_axes({arrays.begin(), arrays.size()})) {}
  explicit RowRuns(const mx::SmallVector<const array*>& arrays)
      : axes_(row_axes({arrays.data(), arrays.size()})) {}

  // The stride of an array's rows within a run.
  int64_t row_stride(size_t array) const {
    return axes_.back().strides[array];
  }

  // Calls f(first_row, rows, offsets) for each run, or part of one, among the
  // rows from begin to end; offsets are in elements.
  template <typename F>
  void for_each(int64_t begin, int64_t end, F f) const {
    auto outer = axes_.size() - 1;
    const auto& run = axes_.back();
    std::vector<int64_t> index(outer, 0);
    Steps offsets = {};
    auto move = [&](const Axis& axis, int64_t steps) {
      for (size_t i = 0; i < offsets.size(); ++i) {
        offsets[i] += steps * axis.strides[i];
      }
    };
    auto run_index = begin / run.size;
    for (auto axis = outer; axis > 0; --axis) {
      const auto& a = axes_[axis - 1];
      index[axis - 1] = run_index % a.size;
      move(a, index[axis - 1]);
      run_index /= a.size;
    }
    auto in_run = begin % run.size;
    move(run, in_run);
    for (auto row = begin; row < end;) {
      auto rows = std::min(run.size - in_run, end - row);
      f(row, rows, offsets);
      row += rows;
      move(run, -in_run);
      in_run = 0;
      for (auto axis = outer; axis > 0; --axis) {
        const auto& a = axes_[axis - 1];
        bool wraps = ++index[axis - 1] == a.size;
        move(a, wraps ? 1 - a.size : 1);
        if (!wraps) {
          break;
        }
        index[axis - 1] = 0;
      }
    }
  }

 private:
  Axes axes_;
};

} // namespace mlx_norms::cpu
