// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm/cpu/statistics.h"
#include "csrc/norm/cpu/store_row.h"

namespace {

// As many rows are computed together as fit in the L1 cache.
constexpr int kMaxRows = 4;

struct UnchangedRows {
  Unchanged operator()(int64_t) const {
    return {};
  }
};

// Computes several rows together, so that the end of one row's sums overlaps
// with the arithmetic of other rows. sum(row, scratch) returns a SummedRow,
// after_of(row) what is done to its results.
template <
    typename T,
    bool kCenter,
    bool kFetch,
    typename Early,
    typename Bias,
    typename F,
    typename AfterOf = UnchangedRows>
inline void norm_rows(
    const NormJob& job,
    int together,
    Early early,
    Bias bias,
    F sum,
    AfterOf after_of = {}) {
  decltype(sum(0, nullptr)) summed[kMaxRows];
  Statistics<kCenter> statistics[kMaxRows];
  for (int64_t first = 0; first < job.rows; first += together) {
    int64_t left = job.rows - first;
    int n = left < together ? left : together;
    for (int i = 0; i < n; ++i) {
      summed[i] = sum(first + i, job.scratch);
    }
    for (int i = 0; i < n; ++i) {
      statistics[i] = row_statistics<kCenter>(summed[i], job.root);
    }
    for (int i = 0; i < n; ++i) {
      store_row<T, kFetch>(
          job,
          first + i,
          together,
          early,
          bias,
          [v = summed[i].row.data, s = statistics[i]](int64_t j) {
            return s.normalize(load(v + j));
          },
          after_of(first + i));
    }
  }
}

} // namespace
