// Copyright © 2026 mlx_norms contributors
//
// Norms over channels, on columns that adjoin. A block of columns is loaded
// from memory once and then read from the cache, some channels at a time, so
// that memory is read in runs. Sums are taken in one order for every
// instruction set.

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

constexpr int64_t kChannelsAtOnce = 16; // of which sums are taken at once

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

// Of each column: what is subtracted first (the first channel), then the mean
// of what is left, and the factor.
struct alignas(64) ColumnStatistics {
  float shift[kMostColumns];
  float mean[kMostColumns];
  float rstd[kMostColumns];
  float of_values[kMostColumns];
  float of_squares[kMostColumns];
};

// The sums of d and d * d over the channels, where d is x - shift - mean.
template <typename T, bool kCenter>
inline void deviation_sums(
    const ChannelsIn& x,
    int64_t channels,
    int64_t columns,
    ColumnStatistics& stats) {
  auto* data = static_cast<const T*>(x.data);
  for (int64_t i = 0; i < columns; i += kLanes) {
    for (int j = 0; j < kLanes; j += kWidth) {
      store(stats.of_values + i + j, Floats{});
      store(stats.of_squares + i + j, Floats{});
    }
  }
  for (int64_t first = 0; first < channels; first += kChannelsAtOnce) {
    auto end =
        first + kChannelsAtOnce < channels ? first + kChannelsAtOnce : channels;
    for (int64_t i = 0; i < columns; i += kWidth) {
      Floats sum = {}, squares = {};
      Floats shift = load(stats.shift + i), mean = load(stats.mean + i);
      for (auto c = first; c < end; ++c) {
        Floats v = load_part(data + c * x.step, i, columns);
        if constexpr (kCenter) {
          v = v - shift - mean;
          sum += v;
        }
        squares += v * v;
      }
      if constexpr (kCenter) {
        store(stats.of_values + i, load(stats.of_values + i) + sum);
      }
      store(stats.of_squares + i, load(stats.of_squares + i) + squares);
    }
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
    store(stats.shift + i, kCenter ? load_part(data, i, columns) : Floats{});
    store(stats.mean + i, Floats{});
  }
  deviation_sums<T, kCenter>(x, channels, columns, stats);
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
  if (any_lost) { // the first channel is far from the others
    deviation_sums<T, kCenter>(x, channels, columns, stats);
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
  // The sums of wg and of wg * n, some channels at once, then of all.
  alignas(64) float some[2][kMostColumns] = {}, all[2][kMostColumns] = {};
  for (int64_t c = 0; c < job.channels; ++c) {
    Floats w = splat(job.weight ? job.weight[c] : 1.0f);
    Floats of_weight[kVectors] = {}, of_bias[kVectors] = {};
    bool flush = (c + 1) % kChannelsAtOnce == 0 || c + 1 == job.channels;
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
        Floats sum = load(some[0] + i) + wg,
               product = load(some[1] + i) + wg * n;
        if (flush) {
          store(all[0] + i, load(all[0] + i) + sum);
          store(all[1] + i, load(all[1] + i) + product);
          sum = product = Floats{};
        }
        store(some[0] + i, sum);
        store(some[1] + i, product);
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
  for (int64_t c = 0; c < job.channels; ++c) {
    Floats w = splat(job.weight ? job.weight[c] : 1.0f);
    auto* to = static_cast<D*>(job.input.data) + c * job.input_step;
    for (int64_t i = 0; i < columns; i += kWidth) {
      Floats g = load_part(gs + c * job.cotangent.step, i, columns);
      Floats d = g * w - normalized(c, i) * (load(all[1] + i) / count);
      if constexpr (kCenter) {
        d = d - load(all[0] + i) / count;
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
