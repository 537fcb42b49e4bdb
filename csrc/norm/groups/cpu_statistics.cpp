// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/groups/cpu_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "csrc/norm/cpu_parameters.h"

namespace mlx_norms::cpu {

namespace {

using Doubles = std::vector<double>;

float variance_of(double squares, const GroupGeometry& of) {
  auto v = static_cast<float>(squares / of.values());
  // inf would make the group zeros.
  return std::isfinite(v) ? v : std::numeric_limits<float>::quiet_NaN();
}

// Statistics of channels that lie along vectors, whose lanes have so many rows
// each.
struct AlongLanes {
  int64_t lanes;
  int64_t rows;
  float* of; // three rows of `pitch`, as of LaneStatisticsJob
  int64_t pitch;

  // Calls f(group, mean, squares) for each lane of `groups` groups, in turn.
  template <typename F>
  void for_each(int64_t groups, F f) const {
    auto *mean = of, *rest = of + pitch, *squares = of + 2 * pitch;
    for (int64_t i = 0; i < lanes; i += groups) {
      for (int64_t g = 0; g < groups; ++g) {
        f(g, static_cast<double>(mean[i + g]) + rest[i + g], squares[i + g]);
      }
    }
  }
};

// The sum of products, in four parts.
double product_sum(const float* a, const float* b, int64_t n) {
  typedef float Four __attribute__((vector_size(16)));
  typedef double Parts __attribute__((vector_size(32)));
  Parts parts = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    Four v, w;
    std::memcpy(&v, a + i, sizeof(v));
    std::memcpy(&w, b + i, sizeof(w));
    parts +=
        __builtin_convertvector(v, Parts) * __builtin_convertvector(w, Parts);
  }
  for (; i < n; ++i) {
    parts[0] += static_cast<double>(a[i]) * b[i];
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

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
      strided(strided && groups > 1),
      pitch(padded(channels)) {
  // A chunk stays in a core's cache, and its sums in float32 are short.
  constexpr int64_t kElements = 64 * 1024;
  constexpr int64_t kMinRows = 64, kMaxRows = 2048;
  chunk_rows = std::clamp(kElements / channels / 16 * 16, kMinRows, kMaxRows);
  chunks = (positions + chunk_rows - 1) / chunk_rows;
}

void add_along_channels(
    const GroupGeometry& of,
    const RowsIn& x,
    int64_t rows,
    int64_t before,
    double* groups) {
  auto of_group = of.channels / of.groups;
  // Channels that adjoin, `width` of them, are a row of the kernel's.
  auto at_once = of.strided ? of.groups : 1;
  auto adjoin = of.strided ? of.channels : of_group;
  auto width = adjoin <= 2 * kRowMultiple
      ? adjoin
      : std::max(kRowMultiple / at_once, int64_t{1}) * at_once;
  auto whole = adjoin / width, left = adjoin % width;
  auto pitch = padded(width);
  std::vector<float> lanes(6 * pitch);
  auto add = [&](const RowsIn& from, const auto& to, int64_t before) {
    kernels().lane_statistics(
        {to.lanes,
         to.rows,
         before,
         {from.data, from.type, width, 1},
         to.of,
         to.of + pitch,
         to.of + 2 * pitch});
  };
  AlongLanes sets[] = {
      {width, whole, lanes.data(), pitch},
      {left, 1, lanes.data() + 3 * pitch, pitch}};
  Doubles means(at_once), squares(at_once);
  for (int64_t first = 0; first < of.groups; first += at_once) {
    for (int64_t row = 0; row < rows; ++row) {
      auto run = from(x, row * x.row_stride + of.first_channel(first));
      add(run, sets[0], row * whole);
      if (left > 0) {
        add(from(run, whole * width), sets[1], row);
      }
    }
    auto values = static_cast<double>(rows * of_group);
    auto earlier = static_cast<double>(before * of_group);
    std::fill(means.begin(), means.end(), 0.0);
    std::fill(squares.begin(), squares.end(), 0.0);
    for (const auto& set : sets) {
      double count = set.rows * rows;
      set.for_each(at_once, [&](int64_t g, double mean, float) {
        means[g] += count * mean;
      });
    }
    for (auto& mean : means) {
      mean /= values;
    }
    for (const auto& set : sets) {
      double count = set.rows * rows;
      set.for_each(at_once, [&](int64_t g, double mean, float square) {
        double apart = mean - means[g];
        squares[g] += square + count * apart * apart;
      });
    }
    for (int64_t g = 0; g < at_once; ++g) {
      auto &mean = groups[first + g], &square = groups[of.groups + first + g];
      if (before > 0) {
        double apart = means[g] - mean, all = earlier + values;
        mean += apart * values / all;
        square += squares[g] + apart * apart * earlier * values / all;
      } else {
        mean = means[g];
        square = squares[g];
      }
    }
  }
}

void finish_along_channels(
    const GroupGeometry& of,
    const double* groups,
    float* mean,
    float* rest,
    float* variance) {
  for (int64_t i = 0; i < of.groups; ++i) {
    mean[i] = groups[i];
    rest[i] = groups[i] - mean[i];
    variance[i] = variance_of(groups[of.groups + i], of);
  }
}

void add_weighted(
    const GroupGeometry& of,
    const float* row,
    const float* weight,
    int64_t first,
    int64_t n,
    double* groups) {
  if (of.strided) {
    auto group = first % of.groups;
    for (int64_t i = 0; i < n; group = 0) {
      auto last = std::min(of.groups - group, n - i);
      for (int64_t j = 0; j < last; ++j, ++i) {
        groups[group + j] += static_cast<double>(row[i]) * weight[i];
      }
    }
    return;
  }
  of.for_each_run(first, n, [&](int64_t group, int64_t i, int64_t count) {
    groups[group] += product_sum(row + i, weight + i, count);
  });
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
    variance[group] = variance_of(squares[group], of);
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
    auto* to = i == 0 ? bias_sums : weight_sums;
    Doubles sums(of.channels);
    for (int64_t chunk = 0; chunk < of.chunks; ++chunk) {
      auto* row = of.row(partials, 2 * chunk + i);
      for (int64_t c = 0; c < of.channels; ++c) {
        sums[c] += row[c];
      }
    }
    if (to) {
      std::copy(sums.begin(), sums.end(), to);
    }
    if (!means) {
      continue;
    }
    for (int64_t c = 0; c < of.channels; ++c) {
      sums[c] *= weight[c];
    }
    for (auto sum : by_groups(of, sums)) {
      *means++ = sum / of.values();
    }
  }
}

} // namespace mlx_norms::cpu
