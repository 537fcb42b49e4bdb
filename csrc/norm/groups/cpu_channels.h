// Copyright © 2026 mlx_norms contributors
//
// What a sample's statistics make of each channel, for both directions.

#pragma once

#include <cmath>
#include <vector>

#include "csrc/cpu/scratch.h"
#include "csrc/norm/cpu_parameters.h"
#include "csrc/norm/groups/cpu_statistics.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/view.h"

namespace mlx_norms::cpu {

// The rows of a sample's vectors: see LaneNormJob and LaneVJPJob.
enum ChannelRow { kMeans, kRstd, kOffset, kMeanWgn, kMeanWg };
inline constexpr int kForwardRows = kMeanWgn, kVJPRows = kMeanWg + 1;

// Writes what a sample's statistics of each group make of each channel.
inline void set_statistics(
    const GroupGeometry& of,
    const float* means,
    const float* rests, // null: zeros
    const float* variances,
    float eps,
    float* vectors) {
  auto* rstd = of.row(vectors, kRstd);
  of.set(of.row(vectors, kMeans), [&](int64_t i) { return means[i]; });
  of.set(rstd, [&](int64_t i) { return 1.0f / std::sqrt(variances[i] + eps); });
  of.set(of.row(vectors, kOffset), [&](int64_t i) {
    return rests ? -rests[i] * rstd[of.place(i)] : -0.0f;
  });
}

// Some channels, and their values in a row of a sample's vectors.
struct ChannelVectors {
  int64_t first;
  int64_t count;
  const float* rows;
  int64_t pitch;

  const float* row(int i) const {
    return rows + i * pitch;
  }
};

// Calls f(channels) for all channels at once or, along them, for some that a
// core's cache holds.
template <typename F>
void for_channels(
    const GroupGeometry& of,
    const float* vectors,
    int n_rows,
    F f) {
  constexpr int64_t kAtOnce = 2048;
  if (!of.along_channels()) {
    return f(ChannelVectors{0, of.channels, vectors, of.pitch});
  }
  auto pitch = std::min(of.pitch, kAtOnce);
  Scratch spread(pitch, n_rows);
  for (int64_t first = 0; first < of.channels; first += pitch) {
    auto count = std::min(pitch, of.channels - first);
    for (int i = 0; i < n_rows; ++i) {
      auto* row = spread.data() + i * pitch;
      of.spread(of.row(vectors, i), first, count, row);
      std::fill(row + count, row + padded(count), 0.0f);
    }
    f(ChannelVectors{first, count, spread.data(), pitch});
  }
}

// Needs an x that is not empty.
inline GroupGeometry geometry_of(const NormSpec& spec, const mx::array& x) {
  View view(spec, x);
  return {view.outer, view.a, view.channels(), view.kept, spec.strided};
}

// The partial sums of a sample whose statistics are taken along its channels:
// two of each group, which is not small, so there is room.
inline double* as_doubles(float* partials) {
  return reinterpret_cast<double*>(partials);
}
inline const double* as_doubles(const float* partials) {
  return reinterpret_cast<const double*>(partials);
}

} // namespace mlx_norms::cpu
