// Copyright © 2026 mlx_norms contributors
//
// The gradients of norms over channels, on columns that adjoin.

#include "csrc/norm/channels/packed_columns.h"
#include "csrc/norm/cpu/compensated_sum.h"

namespace {

// What each column's gradient needs: the sums over the channels of wg and of
// wg * n, where wg is the weighted cotangent.
struct GradientSums {
  ColumnSums of_wg;
  ColumnSums of_wgn;

  explicit GradientSums(int64_t columns) : of_wg(columns), of_wgn(columns) {}
};

// The sums over a block's columns of some channels' g * n and g, lane by lane.
struct alignas(64) ChannelSums {
  float of_weight[kChannelsAtOnce][kLanes];
  float of_bias[kChannelsAtOnce][kLanes];
};

inline float sum_of_lanes(const float* lanes) {
  Floats v[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    v[j] = load(lanes + j * kWidth);
  }
  return sum_lanes(v);
}

// Adds the sums of the channels from `first` to `end`.
inline void add_channels(
    CompensatedSum to,
    int64_t first,
    int64_t end,
    const float (&lanes)[kChannelsAtOnce][kLanes]) {
  float sums[kChannelsAtOnce] = {};
  for (auto c = first; c < end; ++c) {
    sums[c - first] = sum_of_lanes(lanes[c - first]);
  }
  for (int j = 0; j < kChannelsAtOnce; j += kWidth) {
    add_compensated(to, first + j, load(sums + j));
  }
}

// Takes the cotangent. The parameters' gradients are summed over the columns.
template <typename T, typename G, bool kCenter>
inline void sum_gradients(
    const ChannelNormVJPJob& job,
    Columns<T> x,
    Columns<G> cotangent,
    const ColumnStatistics& stats,
    GradientSums& sums) {
  bool wants = job.weight_gradient.sum || job.bias_gradient.sum;
  cotangent.prefetch(0);
  auto* weight = job.weight;
  auto columns = job.columns;
  auto of_weights = job.weight_gradient, of_biases = job.bias_gradient;
  for_channels(job.channels, [=, &stats, &sums](int64_t first, int64_t end) {
    cotangent.prefetch(first + kChannelsAtOnce);
    ChannelSums of_channels;
    if (wants) {
      of_channels = {};
    }
    for (int64_t i = 0; i < columns; i += kWidth) {
      VectorStatistics<kCenter> of(stats, i);
      Floats of_wg = {}, of_wgn = {};
      auto lane = i % kLanes;
      for (auto c = first; c < end; ++c) {
        Floats g = cotangent.take(c, i);
        Floats n = of.normalize(x.taken(c, i));
        if (wants) {
          auto* of_weight = of_channels.of_weight[c - first] + lane;
          auto* of_bias = of_channels.of_bias[c - first] + lane;
          store(of_weight, load(of_weight) + g * n);
          store(of_bias, load(of_bias) + g);
        }
        Floats wg = g * splat(weight ? weight[c] : 1.0f);
        of_wg += wg;
        of_wgn += wg * n;
      }
      sums.of_wg.add(i, of_wg, first);
      sums.of_wgn.add(i, of_wgn, first);
    }
    if (of_weights.sum) {
      add_channels(of_weights, first, end, of_channels.of_weight);
    }
    if (of_biases.sum) {
      add_channels(of_biases, first, end, of_channels.of_bias);
    }
  });
}

template <typename T, typename G, bool kCenter>
void columns_vjp(const ChannelNormVJPJob& job) {
  ColumnStatistics stats;
  Columns<T> x(job.x, job.channels, job.columns, job.packed);
  Columns<G> cotangent(job.cotangent, job.channels, job.columns, x.end());
  column_statistics<T, kCenter>(x, job.channels, job.columns, job.eps, stats);
  GradientSums sums(job.columns);
  sum_gradients<T, G, kCenter>(job, x, cotangent, stats, sums);
  if (!job.input.data) {
    return;
  }
  auto count = splat(static_cast<float>(job.channels));
  auto* out = static_cast<T*>(job.input.data);
  auto* weight = job.weight;
  auto step = job.input_step, columns = job.columns;
  alignas(64) float means_wg[kMostColumns], means_wgn[kMostColumns];
  for (int64_t i = 0; i < columns; i += kWidth) {
    store(means_wg + i, sums.of_wg.total(i) / count);
    store(means_wgn + i, sums.of_wgn.total(i) / count);
  }
  for_channels(
      job.channels,
      [=, &stats, &means_wg, &means_wgn](int64_t first, int64_t end) {
        for (int64_t i = 0; i < columns; i += kWidth) {
          VectorStatistics<kCenter> of(stats, i);
          Floats mean_wg = load(means_wg + i), mean_wgn = load(means_wgn + i);
          for (auto c = first; c < end; ++c) {
            Floats wg =
                cotangent.taken(c, i) * splat(weight ? weight[c] : 1.0f);
            Floats d = wg - of.normalize(x.taken(c, i)) * mean_wgn;
            if constexpr (kCenter) {
              d = d - mean_wg;
            }
            store_part(out + c * step, i, columns, d * of.rstd);
          }
        }
      });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void channel_norm_vjp(const ChannelNormVJPJob& job) {
  // The input's gradient has x's dtype.
  with_type(job.x.type, [&](auto x) {
    with_type(job.cotangent.type, [&](auto g) {
      with_flag(job.center, [&](auto center) {
        columns_vjp<
            typename decltype(x)::type,
            typename decltype(g)::type,
            center.value>(job);
      });
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
