// Copyright © 2026 mlx_norms contributors
//
// A block of adjoining columns. It is read from memory once, some channels at a
// time, into a copy without the gaps between channels: with them, a block that
// fits in the cache would not, when the gap is a power of two. Sums are taken
// in one order for every instruction set.

#pragma once

#include "csrc/cpu/pairwise_sum.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu_types.h"

namespace {

using mlx_norms::cpu::ChannelsIn;
using mlx_norms::cpu::kMostColumns;

constexpr int64_t kChannelsAtOnce = 16; // of which sums are taken at once

// Calls f(first, end) for some channels after others.
template <typename F>
inline void for_channels(int64_t channels, F f) {
  for (int64_t first = 0; first < channels; first += kChannelsAtOnce) {
    auto left = channels - first;
    f(first, first + (left < kChannelsAtOnce ? left : kChannelsAtOnce));
  }
}

// Zeros past the last column.
template <typename T>
inline Floats load_part(const T* p, int64_t i, int64_t columns) {
  return i + kWidth <= columns
      ? load(p + i)
      : load(p + i, Part{static_cast<int>(columns - i)});
}

template <typename T>
inline void store_part(T* p, int64_t i, int64_t columns, Floats v) {
  if (i + kWidth <= columns) {
    store(p + i, v);
  } else {
    store(p + i, v, Part{static_cast<int>(columns - i)});
  }
}

// Copies a vector's elements as they are, and returns them.
inline Floats copy_vector(const float* from, float* to) {
  Floats v = load(from);
  store(to, v);
  return v;
}
template <typename T>
inline Floats copy_vector(const T* from, T* to) {
  Halves bits = load_bits(from);
  std::memcpy(to, &bits, sizeof(bits));
  return load(reinterpret_cast<const T*>(&bits));
}

// Columns of T, whose vectors are copied to `packed` when they are first taken.
template <typename T>
class Columns {
 public:
  Columns(const ChannelsIn& from, int64_t channels, int64_t columns, void* to)
      : from_(static_cast<const T*>(from.data)),
        step_(from.step),
        channels_(channels),
        columns_(columns),
        packed_(static_cast<T*>(to)),
        pitch_((columns + kWidth - 1) / kWidth * kWidth) {}

  // The middle one of the first three channels: x itself, so that deviations
  // of equal values are 0, and no outlier.
  Floats middle(int64_t i) const {
    auto at = [&](int64_t c) {
      auto last = channels_ - 1;
      return load_part(from_ + (c < last ? c : last) * step_, i, columns_);
    };
    Floats a = at(0), b = at(1), c = at(2);
    Floats low = a < b ? a : b, high = a < b ? b : a;
    Floats rest = high < c ? high : c;
    return low < rest ? rest : low;
  }

  Floats take(int64_t c, int64_t i) const {
    auto* from = from_ + c * step_ + i;
    auto* to = packed_ + c * pitch_ + i;
    if (i + kWidth <= columns_) {
      return copy_vector(from, to);
    }
    Floats v = load(from, Part{static_cast<int>(columns_ - i)});
    store(to, v);
    return v;
  }

  Floats taken(int64_t c, int64_t i) const {
    return load(packed_ + c * pitch_ + i);
  }

  // Before channels are taken: hardware does not see their runs coming.
  void prefetch(int64_t first) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    auto left = channels_ - first;
    auto end = first + (left < kChannelsAtOnce ? left : kChannelsAtOnce);
    for (auto c = first; c < end; ++c) {
      for (int64_t i = 0; i < columns_; i += kLine) {
        __builtin_prefetch(from_ + c * step_ + i);
      }
    }
  }

  // Where a second array's copy begins.
  void* end() const {
    return packed_ + channels_ * pitch_;
  }

 private:
  const T* from_;
  int64_t step_;
  int64_t channels_;
  int64_t columns_;
  T* packed_;
  int64_t pitch_;
};

// The sum of each column's channels in levels, of sums of kChannelsAtOnce and
// then of as many sums, so that rounding errors do not grow with the number of
// channels.
struct alignas(64) ColumnSums {
  static constexpr int kLevels = 4;

  float level[kLevels][kMostColumns];

  explicit ColumnSums(int64_t columns) {
    for (auto& sums : level) {
      for (int64_t i = 0; i < columns; i += kWidth) {
        store(sums + i, Floats{});
      }
    }
  }

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

// Of each column: what is subtracted first (one of its channels), then the mean
// of what is left, and the factor, which is zero past the last column.
struct alignas(64) ColumnStatistics {
  float shift[kMostColumns];
  float mean[kMostColumns];
  float rstd[kMostColumns];
  float of_values[kMostColumns];
  float of_squares[kMostColumns];
};

// The statistics of the columns at a vector.
template <bool kCenter>
struct VectorStatistics {
  Floats shift, mean, rstd;

  VectorStatistics(const ColumnStatistics& s, int64_t i)
      : shift(load(s.shift + i)),
        mean(load(s.mean + i)),
        rstd(load(s.rstd + i)) {}

  Floats normalize(Floats v) const {
    return (kCenter ? v - shift - mean : v) * rstd;
  }
};

// The sums of d and d * d over the channels, where d is value(c, i) - shift -
// mean. Calls before(first) before some channels.
template <bool kCenter, typename F, typename G>
inline void deviation_sums(
    int64_t channels,
    int64_t columns,
    ColumnStatistics& stats,
    G before,
    F value) {
  ColumnSums of_values(kCenter ? columns : 0), of_squares(columns);
  // By value: stores may overwrite what a reference is to.
  for_channels(
      channels,
      [=, &stats, &of_values, &of_squares](int64_t first, int64_t end) {
        before(first);
        for (int64_t i = 0; i < columns; i += kWidth) {
          Floats sum = {}, squares = {};
          Floats shift = load(stats.shift + i), mean = load(stats.mean + i);
          for (auto c = first; c < end; ++c) {
            Floats v = value(c, i);
            if constexpr (kCenter) {
              v = v - shift - mean;
              sum += v;
            }
            squares += v * v;
          }
          if constexpr (kCenter) {
            of_values.add(i, sum, first);
          }
          of_squares.add(i, squares, first);
        }
      });
  for (int64_t i = 0; i < columns; i += kWidth) {
    if constexpr (kCenter) {
      store(stats.of_values + i, of_values.total(i));
    }
    store(stats.of_squares + i, of_squares.total(i));
  }
}

inline bool is_finite_float(float v) {
  return __builtin_fabsf(v) <= __FLT_MAX__;
}

// Takes the columns of x, for their statistics.
template <typename T, bool kCenter>
inline void column_statistics(
    Columns<T> x,
    int64_t channels,
    int64_t columns,
    float eps,
    ColumnStatistics& stats) {
  auto count = static_cast<float>(channels);
  for (int64_t i = 0; i < columns; i += kWidth) {
    store(stats.shift + i, kCenter ? x.middle(i) : Floats{});
    store(stats.mean + i, Floats{});
    store(stats.rstd + i, Floats{});
  }
  x.prefetch(0);
  deviation_sums<kCenter>(
      channels,
      columns,
      stats,
      [x](int64_t first) { x.prefetch(first + kChannelsAtOnce); },
      [x](int64_t c, int64_t i) { return x.take(c, i); });
  float variance[kMostColumns];
  bool lost[kMostColumns];
  bool any_lost = false;
  for (int64_t i = 0; i < columns; ++i) {
    float mean = kCenter ? stats.of_values[i] / count : 0.0f;
    variance[i] = stats.of_squares[i] / count - mean * mean;
    stats.mean[i] = mean;
    lost[i] =
        kCenter && (!is_finite_float(variance[i]) || variance[i] < mean * mean);
    any_lost |= lost[i];
  }
  if (any_lost) { // a shift is far from the other channels
    deviation_sums<kCenter>(
        channels,
        columns,
        stats,
        [](int64_t) {},
        [x](int64_t c, int64_t i) { return x.taken(c, i); });
    for (int64_t i = 0; i < columns; ++i) {
      if (lost[i]) {
        float rest = stats.of_values[i] / count;
        variance[i] = stats.of_squares[i] / count - rest * rest;
        stats.mean[i] += rest;
        if (!is_finite_float(variance[i])) {
          variance[i] = __builtin_nanf("");
        }
      }
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    stats.rstd[i] = 1.0f / __builtin_sqrtf(variance[i] + eps);
  }
}

} // namespace
