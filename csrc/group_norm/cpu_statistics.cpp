// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/cpu_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "csrc/cpu/rows.h"

namespace mlx_norms::cpu {

namespace {

using Doubles = std::vector<double>;

// Sums of each channel as sums of each group.
Doubles by_groups(const GroupGeometry& of, const Doubles& of_channels) {
  Doubles sums(of.groups);
  of.for_each_channel(
      [&](int64_t c, int64_t group) { sums[group] += of_channels[c]; });
  return sums;
}

} // namespace

GroupGeometry::GroupGeometry(
    int64_t samples,
    int64_t positions,
    int64_t channels,
    int64_t groups,
    bool strided)
    : samples(samples),
      positions(positions),
      channels(channels),
      groups(groups),
      strided(strided),
      pitch(padded(channels)) {
  // A chunk stays in a core's cache, and its sums in float32 are short.
  constexpr int64_t kElements = 64 * 1024;
  constexpr int64_t kFewestRows = 64, kMostRows = 2048;
  chunk_rows =
      std::clamp(kElements / channels / 16 * 16, kFewestRows, kMostRows);
  chunks = (positions + chunk_rows - 1) / chunk_rows;
}

void merge_statistics(
    const GroupGeometry& of,
    const float* partials,
    float* mean,
    float* rest,
    float* variance) {
  auto row = [&](int64_t chunk, int i) {
    return of.row(partials, 3 * chunk + i);
  };
  Doubles sums(of.channels);
  for (int64_t chunk = 0; chunk < of.chunks; ++chunk) {
    auto count = static_cast<double>(of.rows_of(chunk));
    auto *high = row(chunk, 0), *low = row(chunk, 1);
    for (int64_t c = 0; c < of.channels; ++c) {
      sums[c] += count * (static_cast<double>(high[c]) + low[c]);
    }
  }
  auto means = by_groups(of, sums);
  for (int64_t group = 0; group < of.groups; ++group) {
    means[group] /= of.values();
    mean[group] = means[group];
    rest[group] = means[group] - mean[group];
  }

  Doubles centers(of.channels);
  of.for_each_channel(
      [&](int64_t c, int64_t group) { centers[c] = means[group]; });
  std::fill(sums.begin(), sums.end(), 0.0);
  for (int64_t chunk = 0; chunk < of.chunks; ++chunk) {
    auto count = static_cast<double>(of.rows_of(chunk));
    auto *high = row(chunk, 0), *low = row(chunk, 1), *squares = row(chunk, 2);
    for (int64_t c = 0; c < of.channels; ++c) {
      double apart = (high[c] - centers[c]) + low[c];
      sums[c] += squares[c] + count * apart * apart;
    }
  }
  auto squares = by_groups(of, sums);
  for (int64_t group = 0; group < of.groups; ++group) {
    auto v = static_cast<float>(squares[group] / of.values());
    // inf would make the group zeros.
    variance[group] =
        std::isfinite(v) ? v : std::numeric_limits<float>::quiet_NaN();
  }
}

void merge_gradients(
    const GroupGeometry& of,
    const float* partials,
    const float* weight,
    float* bias_sums,
    float* weight_sums,
    float* means) {
  for (int i = 0; i < 2; ++i) {
    Doubles sums(of.channels);
    for (int64_t chunk = 0; chunk < of.chunks; ++chunk) {
      auto* row = of.row(partials, 2 * chunk + i);
      for (int64_t c = 0; c < of.channels; ++c) {
        sums[c] += row[c];
      }
    }
    std::copy(sums.begin(), sums.end(), i == 0 ? bias_sums : weight_sums);
    if (!means) {
      continue;
    }
    if (weight) {
      for (int64_t c = 0; c < of.channels; ++c) {
        sums[c] *= weight[c];
      }
    }
    for (auto sum : by_groups(of, sums)) {
      *means++ = sum / of.values();
    }
  }
}

} // namespace mlx_norms::cpu
