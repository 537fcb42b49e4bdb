// Copyright © 2026 mlx_norms contributors
//
// Norms over channels, on columns that adjoin. A block of columns is loaded
// from memory once and then read from the cache, some channels at a time, so
// that memory is read in runs. Sums are taken in one order for every
// instruction set.

#include <algorithm>
#include <cmath>

#include "csrc/cpu/pairwise_sum.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu_types.h"

namespace {

using mlx_norms::cpu::ChannelNormJob;
using mlx_norms::cpu::ChannelNormVJPJob;
using mlx_norms::cpu::ChannelsIn;
using mlx_norms::cpu::CompensatedSum;
using mlx_norms::cpu::kMostColumns;

constexpr int64_t kSummedAtOnce = 16; // terms, or sums of as many

// Zeros past the last column.
template <typename T>
inline Floats load_part(const T* p, int64_t i, int64_t columns) {
  if (i + kWidth <= columns) {
    return load(p + i);
  }
  return i < columns ? load(p + i, Part{static_cast<int>(columns - i)})
                     : Floats{};
}

template <typename T>
inline void store_part(T* p, int64_t i, int64_t columns, Floats v) {
  if (i + kWidth <= columns) {
    store(p + i, v);
  } else if (i < columns) {
    store(p + i, v, Part{static_cast<int>(columns - i)});
  }
}

// Of each column: what is subtracted first (one of its channels), then the mean
// of what is left, and the factor.
struct alignas(64) ColumnStatistics {
  float shift[kMostColumns];
  float mean[kMostColumns];
  float rstd[kMostColumns];
};

// The sum of each column in levels of kSummedAtOnce sums, so that rounding
// errors do not grow with the number of channels.
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

  // Adds to some columns what is the number-th to be added, from 1 on.
  void add(int64_t i, Floats v, int64_t number) {
    for (int l = 0; l < kLevels; ++l, number /= kSummedAtOnce) {
      v = load(level[l] + i) + v;
      if (l + 1 == kLevels || number % kSummedAtOnce != 0) {
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

// The sums of d and d * d over the channels, where d is x - shift - mean.
template <typename T, bool kCenter>
inline void deviation_sums(
    const ChannelsIn& x,
    int64_t channels,
    int64_t columns,
    const ColumnStatistics& stats,
    float* values,
    float* squares) {
  auto* data = static_cast<const T*>(x.data);
  ColumnSums of_values(kCenter ? columns : 0), of_squares(columns);
  int64_t number = 0;
  for (int64_t first = 0; first < channels; first += kSummedAtOnce) {
    auto end =
        first + kSummedAtOnce < channels ? first + kSummedAtOnce : channels;
    ++number;
    for (int64_t i = 0; i < columns; i += kWidth) {
      Floats sum = {}, square = {};
      Floats shift = load(stats.shift + i), mean = load(stats.mean + i);
      for (auto c = first; c < end; ++c) {
        Floats v = load_part(data + c * x.step, i, columns);
        if constexpr (kCenter) {
          v = v - shift - mean;
          sum += v;
        }
        square += v * v;
      }
      if constexpr (kCenter) {
        of_values.add(i, sum, number);
      }
      of_squares.add(i, square, number);
    }
  }
  for (int64_t i = 0; i < columns; i += kWidth) {
    if constexpr (kCenter) {
      store(values + i, of_values.total(i));
    }
    store(squares + i, of_squares.total(i));
  }
}

// The middle one of each column's first three channels: x itself, so that
// deviations of equal values are 0, and no outlier.
template <typename T>
inline void shift_columns(
    const T* data,
    int64_t step,
    int64_t channels,
    int64_t columns,
    float* shift) {
  alignas(64) float first[3][kMostColumns];
  for (int64_t c = 0; c < 3; ++c) {
    auto* from = data + std::min(c, channels - 1) * step;
    for (int64_t i = 0; i < columns; i += kWidth) {
      store(first[c] + i, load_part(from, i, columns));
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    float a = first[0][i], b = first[1][i], c = first[2][i];
    shift[i] = std::max(std::min(a, b), std::min(std::max(a, b), c));
  }
}

inline bool is_finite_float(float v) {
  return std::fabs(v) <= 3.40282347e38f;
}

template <typename T, bool kCenter>
inline void column_statistics(
    const ChannelsIn& x,
    int64_t channels,
    int64_t columns,
    float eps,
    ColumnStatistics& stats) {
  auto* data = static_cast<const T*>(x.data);
  auto count = static_cast<float>(channels);
  for (int64_t i = 0; i < columns; i += kWidth) {
    store(stats.shift + i, Floats{});
    store(stats.mean + i, Floats{});
  }
  if constexpr (kCenter) {
    shift_columns(data, x.step, channels, columns, stats.shift);
  }
  alignas(64) float of_values[kMostColumns], of_squares[kMostColumns];
  deviation_sums<T, kCenter>(
      x, channels, columns, stats, of_values, of_squares);
  float variance[kMostColumns];
  bool lost[kMostColumns];
  bool any_lost = false;
  for (int64_t i = 0; i < columns; ++i) {
    float mean = kCenter ? of_values[i] / count : 0.0f;
    variance[i] = of_squares[i] / count - mean * mean;
    stats.mean[i] = mean;
    lost[i] =
        kCenter && (!is_finite_float(variance[i]) || variance[i] < mean * mean);
    any_lost |= lost[i];
  }
  if (any_lost) { // a shift is far from the other channels
    deviation_sums<T, kCenter>(
        x, channels, columns, stats, of_values, of_squares);
    for (int64_t i = 0; i < columns; ++i) {
      if (lost[i]) {
        float rest = of_values[i] / count;
        variance[i] = of_squares[i] / count - rest * rest;
        stats.mean[i] += rest;
        if (!is_finite_float(variance[i])) {
          variance[i] = __builtin_nanf("");
        }
      }
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    stats.rstd[i] = 1.0f / std::sqrt(variance[i] + eps);
  }
}

template <typename T, typename Y, bool kCenter>
void normalize_columns(const ChannelNormJob& job) {
  ColumnStatistics stats;
  column_statistics<T, kCenter>(
      job.x, job.channels, job.columns, job.eps, stats);
  for (int64_t c = 0; c < job.channels; ++c) {
    auto* from = static_cast<const T*>(job.x.data) + c * job.x.step;
    auto* to = static_cast<Y*>(job.normalized.data) + c * job.normalized_step;
    for (int64_t i = 0; i < job.columns; i += kWidth) {
      Floats v = load_part(from, i, job.columns);
      if constexpr (kCenter) {
        v = v - load(stats.shift + i) - load(stats.mean + i);
      }
      v = v * load(stats.rstd + i);
      if (!job.late) {
        v = round_to<Y>(v);
      }
      if (job.weight) {
        v = v * splat(job.weight[c]);
      }
      if (job.bias) {
        v = v + splat(job.bias[c]);
      }
      store_part(to, i, job.columns, v);
    }
  }
}

// Kahan's sum, for one channel.
inline void add_to(CompensatedSum to, int64_t c, float v) {
  float y = v - to.error[c];
  float next = to.sum[c] + y;
  float error = (next - to.sum[c]) - y;
  to.error[c] = error != error ? 0.0f : error; // an infinite sum's is NaN
  to.sum[c] = next;
}

template <typename T, typename G, typename D, bool kCenter>
void columns_vjp(const ChannelNormVJPJob& job) {
  ColumnStatistics stats;
  column_statistics<T, kCenter>(
      job.x, job.channels, job.columns, job.eps, stats);
  auto columns = job.columns;
  auto* xs = static_cast<const T*>(job.x.data);
  auto* gs = static_cast<const G*>(job.cotangent.data);
  auto normalized = [&](int64_t c, int64_t i) {
    Floats v = load_part(xs + c * job.x.step, i, columns);
    if constexpr (kCenter) {
      v = v - load(stats.shift + i) - load(stats.mean + i);
    }
    return v * load(stats.rstd + i);
  };
  auto count = splat(static_cast<float>(job.channels));
  ColumnSums of_wg(columns), of_products(columns); // of wg and wg * n
  for (int64_t c = 0; c < job.channels; ++c) {
    Floats w = splat(job.weight ? job.weight[c] : 1.0f);
    Floats of_weight[kVectors] = {}, of_bias[kVectors] = {};
    for (int64_t begin = 0; begin < columns; begin += kLanes) {
      for (int j = 0; j < kVectors; ++j) {
        auto i = begin + j * kWidth;
        if (i >= columns) {
          break;
        }
        Floats g = load_part(gs + c * job.cotangent.step, i, columns);
        Floats n = normalized(c, i);
        if (i + kWidth > columns) { // of columns past the last, n may be NaN
          n = replace_from(n, columns - i, 0.0f);
        }
        of_weight[j] += g * n;
        of_bias[j] += g;
        Floats wg = g * w;
        of_wg.add(i, wg, c + 1);
        of_products.add(i, wg * n, c + 1);
      }
    }
    if (job.weight_gradient.sum) {
      add_to(job.weight_gradient, c, sum_lanes(of_weight));
    }
    if (job.bias_gradient.sum) {
      add_to(job.bias_gradient, c, sum_lanes(of_bias));
    }
  }
  if (!job.input.data) {
    return;
  }
  alignas(64) float mean_wg[kMostColumns], mean_product[kMostColumns];
  for (int64_t i = 0; i < columns; i += kWidth) {
    store(mean_wg + i, of_wg.total(i) / count);
    store(mean_product + i, of_products.total(i) / count);
  }
  for (int64_t c = 0; c < job.channels; ++c) {
    Floats w = splat(job.weight ? job.weight[c] : 1.0f);
    auto* to = static_cast<D*>(job.input.data) + c * job.input_step;
    for (int64_t i = 0; i < columns; i += kWidth) {
      Floats g = load_part(gs + c * job.cotangent.step, i, columns);
      Floats d = g * w - normalized(c, i) * load(mean_product + i);
      if constexpr (kCenter) {
        d = d - load(mean_wg + i);
      }
      store_part(to, i, columns, d * load(stats.rstd + i));
    }
  }
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void channel_norm(const ChannelNormJob& job) {
  with_type(job.x.type, [&](auto x) {
    with_type(job.normalized.type, [&](auto y) {
      with_flag(job.center, [&](auto center) {
        normalize_columns<
            typename decltype(x)::type,
            typename decltype(y)::type,
            center.value>(job);
      });
    });
  });
}

void channel_norm_vjp(const ChannelNormVJPJob& job) {
  // The input's gradient has x's dtype.
  with_type(job.x.type, [&](auto x) {
    with_type(job.cotangent.type, [&](auto g) {
      with_flag(job.center, [&](auto center) {
        using T = typename decltype(x)::type;
        columns_vjp<T, typename decltype(g)::type, T, center.value>(job);
      });
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
