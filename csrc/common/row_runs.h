// Copyright © 2026 mlx_norms contributors

#pragma once

#include <algorithm>
#include <vector>

#include "csrc/common/types.h"

namespace mlx_norms {

// The rows of some arrays of one shape, in order, as runs: within a run each
// array's rows lie one constant stride apart.
class RowRuns {
 public:
  struct Axis {
    int64_t size;
    std::vector<int64_t> strides; // of each array, in elements
  };

  explicit RowRuns(const std::vector<const mx::array*>& arrays) {
    const auto& shape = arrays[0]->shape();
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) {
      if (shape[axis] == 1) {
        continue;
      }
      std::vector<int64_t> strides;
      for (auto* a : arrays) {
        strides.push_back(a->strides()[axis]);
      }
      append(shape[axis], strides);
    }
    if (axes_.empty()) {
      axes_.push_back({1, std::vector<int64_t>(arrays.size(), 0)});
    }
  }

  // The axes of rows, outermost first, with those merged that can be; the last
  // one is a run's.
  const std::vector<Axis>& axes() const {
    return axes_;
  }

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
    std::vector<int64_t> offsets(run.strides.size(), 0);
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
  // Merges with the last axis where every array's strides allow it.
  void append(int64_t size, const std::vector<int64_t>& strides) {
    if (!axes_.empty()) {
      auto& last = axes_.back();
      bool merges = true;
      for (size_t i = 0; i < strides.size(); ++i) {
        merges &= last.strides[i] == size * strides[i];
      }
      if (merges) {
        last = {last.size * size, strides};
        return;
      }
    }
    axes_.push_back({size, strides});
  }

  std::vector<Axis> axes_;
};

} // namespace mlx_norms
