// Copyright © 2026 mlx_norms contributors
//
// The statistics of norms that have a lane each, and what follows from them.

#pragma once

#include <algorithm>

#include "csrc/cpu/scratch.h"
#include "csrc/norm/cpu_kernels.h"

namespace mlx_norms::cpu {

struct LaneStatistics {
  Scratch rows;
  float *mean, *rest, *variance, *error, *rstd, *shift;

  // `lanes` is the most that a job has. Those that have none yet take part in
  // the arithmetic, too.
  explicit LaneStatistics(int64_t lanes) : rows(lanes, 6) {
    auto* row = rows.data();
    std::fill_n(row, 6 * padded(lanes), 0.0f);
    for (auto** to : {&mean, &rest, &variance, &error, &rstd, &shift}) {
      *to = row;
      row += padded(lanes);
    }
  }

  LaneScale scale() const {
    return {mean, rstd, shift};
  }

  // A sum of so many rows, in which few take no error.
  static CompensatedSum sum(int64_t n, float* sum, float* error) {
    constexpr int64_t kFew = 2048;
    return {sum, n > kFew ? error : nullptr};
  }

  // A job for those of x, whose rows are a lane's elements.
  LaneStatisticsJob
  job_for(const RowsIn& x, int64_t lanes, int64_t elements, bool center) const {
    auto squares = sum(elements, variance, error);
    return {lanes, elements, 0, x, mean, rest, squares, !center};
  }

  // Those of sums of squares of so many elements or, for one, a variance.
  void set_factors(int64_t lanes, int64_t elements, Root root, bool center) {
    kernels().lane_factors(
        {lanes,
         static_cast<float>(elements),
         root,
         rest,
         variance,
         rstd,
         shift,
         !center});
  }

  void measure(const LaneStatisticsJob& job, Root root) {
    kernels().lane_statistics(job);
    set_factors(job.lanes, job.rows, root, !job.uncentered);
  }
};

} // namespace mlx_norms::cpu
