// Copyright © 2026 mlx_norms contributors
//
// Adjoining columns, and sums over their channels. All columns of a channel are
// read before the next channel's: short runs, each in another page, take up to
// twice as long, even if the columns then stay in the cache between passes.
// Sums are taken in one order for every instruction set.

#pragma once

#include "csrc/cpu/pairwise_sum.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/root.h"
#include "csrc/norm/cpu_types.h"

namespace {

using mlx_norms::cpu::ChannelsIn;
using mlx_norms::cpu::kMaxColumns;

constexpr int64_t kChannelsAtOnce = 16; // of which sums are taken at once

// Calls f(first, end) for some channels after others.
template <typename F>
inline void for_channels(int64_t channels, F f) {
  for (int64_t first = 0; first < channels; first += kChannelsAtOnce) {
    auto left = channels - first;
    f(first, first + (left < kChannelsAtOnce ? left : kChannelsAtOnce));
  }
}

// How many channels of a run of columns to prefetch ahead, for which memory
// takes long enough.
template <typename T>
inline int64_t channels_ahead(int64_t columns) {
  constexpr int64_t kAhead = 2048 / sizeof(T);
  return (kAhead + columns - 1) / columns;
}

// Columns of T. Hardware does not see where their runs go on, so they are
// prefetched by those who read them.
template <typename T>
struct Columns {
  const T* data;
  int64_t step;
  int64_t channels;

  Columns(const ChannelsIn& from, int64_t channels)
      : data(static_cast<const T*>(from.data)),
        step(from.step),
        channels(channels) {}

  // The middle one of the first three channels: x itself, so that deviations
  // of equal values are 0, and no outlier.
  template <typename Extent>
  Floats middle(int64_t i, Extent extent) const {
    auto at = [&](int64_t c) {
      auto last = channels - 1;
      return load(data + (c < last ? c : last) * step + i, extent);
    };
    Floats a = at(0), b = at(1), c = at(2);
    Floats low = a < b ? a : b, high = a < b ? b : a;
    Floats rest = high < c ? high : c;
    return low < rest ? rest : low;
  }

  // From a channel to the one `n` channels later, or to itself past the last.
  int64_t ahead(int64_t c, int64_t n) const {
    return c + n < channels ? n * step : 0;
  }
};

// The sum of each column's channels in levels, of sums of kChannelsAtOnce and
// then of as many sums, so that rounding errors do not grow with the number of
// channels.
struct alignas(64) ColumnSums {
  static constexpr int kLevels = 4;

  float level[kLevels][kMaxColumns];

  // Adds a vector of columns' sums of the kChannelsAtOnce channels from
  // `first`.
  void add(int64_t i, Floats v, int64_t first) {
    auto number = first / kChannelsAtOnce + 1;
    for (int l = 0; l < kLevels; ++l, number /= kChannelsAtOnce) {
      v = load(level[l] + i) + v;
      if (l + 1 == kLevels || number % kChannelsAtOnce != 0) {
        store(level[l] + i, v);
        return;
      }
      store(level[l] + i, Floats{});
    }
  }

  Floats total(int64_t i) const {
    Floats sum = load(level[0] + i);
    for (int l = 1; l < kLevels; ++l) {
      sum = load(level[l] + i) + sum;
    }
    return sum;
  }
};

// K sums over the channels, by column.
template <int K>
struct ColumnTotals {
  alignas(64) float of[K][kMaxColumns];
};

// Sums terms(first, i, extent)(c) of channel c of the columns at i, a term of K
// sums. `first` is the first of the channels that are summed at once.
template <int K, typename F>
inline void sum_channels(
    int64_t channels,
    int64_t columns,
    ColumnTotals<K>& totals,
    F terms) {
  ColumnSums sums[K];
  for (auto& of : sums) {
    for (auto& level : of.level) {
      for (int64_t i = 0; i < columns; i += kWidth) {
        store(level + i, Floats{});
      }
    }
  }
  for_channels(channels, [=, &sums](int64_t first, int64_t end) {
    for_vectors(columns, [=, &sums](int64_t i, auto extent) {
      auto term = terms(first, i, extent);
      Term<K> sum = {};
      for (auto c = first; c < end; ++c) {
        Term<K> t = term(c);
        for (int k = 0; k < K; ++k) {
          sum.v[k] += t.v[k];
        }
      }
      for (int k = 0; k < K; ++k) {
        sums[k].add(i, sum.v[k], first);
      }
    });
  });
  for (int k = 0; k < K; ++k) {
    for (int64_t i = 0; i < columns; i += kWidth) {
      store(totals.of[k] + i, sums[k].total(i));
    }
  }
}

// Of each column: what is subtracted first (one of its channels), then the mean
// of what is left, and the factor, which is zero past the last column.
struct alignas(64) ColumnStatistics {
  float shift[kMaxColumns];
  float mean[kMaxColumns];
  float rstd[kMaxColumns];
  bool lost[kMaxColumns]; // whether the shift was far from the other channels
};

// Precision is lost where the square of the mean deviation is more variances
// than these. A shift is hardly ever four standard deviations off.
constexpr float kFarVariances = 16.0f;

// The statistics of the columns at a vector.
template <bool kCenter>
struct VectorStatistics {
  Floats shift, mean, rstd;

  VectorStatistics(const ColumnStatistics& s, int64_t i)
      : shift(load(s.shift + i)),
        mean(load(s.mean + i)),
        rstd(load(s.rstd + i)) {}

  Floats deviation(Floats v) const {
    return kCenter ? v - shift - mean : v;
  }
  Floats normalize(Floats v) const {
    return deviation(v) * rstd;
  }
};

// A mean of 0, for the first sums.
template <bool kCenter, typename T>
inline void set_shifts(Columns<T> x, int64_t columns, ColumnStatistics& stats) {
  for_vectors(columns, [x, &stats](int64_t i, auto extent) {
    store(stats.shift + i, kCenter ? x.middle(i, extent) : Floats{});
    store(stats.mean + i, Floats{});
    store(stats.rstd + i, Floats{});
  });
}

// The squares of the deviations from the shift and the mean and, with center,
// the deviations.
template <bool kCenter, typename T>
inline void sum_deviations(
    Columns<T> x,
    int64_t columns,
    const ColumnStatistics& stats,
    ColumnTotals<1 + kCenter>& totals) {
  sum_channels(
      x.channels,
      columns,
      totals,
      [x, &stats](int64_t first, int64_t i, auto extent) {
        VectorStatistics<kCenter> of(stats, i);
        auto ahead = x.ahead(first, kChannelsAtOnce);
        return [=](int64_t c) {
          auto* from = x.data + c * x.step + i;
          __builtin_prefetch(from + ahead);
          Floats d = of.deviation(load(from, extent));
          if constexpr (kCenter) {
            return Term<2>{d * d, d};
          } else {
            return Term<1>{d * d};
          }
        };
      });
}

inline bool is_finite_float(float v) {
  return __builtin_fabsf(v) <= __FLT_MAX__;
}

// Takes the first sums over the channels: those of sum_deviations() or more.
template <bool kCenter, typename T, int K>
inline void set_statistics(
    Columns<T> x,
    int64_t columns,
    Root root,
    const ColumnTotals<K>& totals,
    ColumnStatistics& stats) {
  auto count = static_cast<float>(x.channels);
  float variance[kMaxColumns];
  bool any_lost = false;
  for (int64_t i = 0; i < columns; ++i) {
    float mean = kCenter ? totals.of[kCenter][i] / count : 0.0f;
    variance[i] = totals.of[0][i] / count - mean * mean;
    stats.mean[i] = mean;
    stats.lost[i] = kCenter &&
        (!is_finite_float(variance[i]) ||
         kFarVariances * variance[i] < mean * mean);
    if (stats.lost[i]) { // the mean becomes the shift
      stats.shift[i] += mean;
      stats.mean[i] = 0.0f;
      any_lost = true;
    }
  }
  if (any_lost) {
    ColumnTotals<1 + kCenter> again;
    sum_deviations<kCenter>(x, columns, stats, again);
    for (int64_t i = 0; i < columns; ++i) {
      if (stats.lost[i]) {
        float rest = again.of[kCenter][i] / count;
        variance[i] = again.of[0][i] / count - rest * rest;
        stats.mean[i] = rest;
        if (!is_finite_float(variance[i])) {
          variance[i] = __builtin_nanf("");
        }
      }
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    stats.rstd[i] = inverse_root(root, variance[i]);
  }
}

} // namespace
