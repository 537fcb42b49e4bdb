// Copyright © 2026 mlx_norms contributors
//
// The gradients of norms over channels, on columns that adjoin. wg is the
// weighted cotangent, n the normalized input.

#include "csrc/norm/channels/columns.h"
#include "csrc/norm/cpu/compensated_sum.h"

namespace {

// The means over each column's channels of wg * n and, with center, of wg.
struct alignas(64) GradientMeans {
  float of_wgn[kMaxColumns];
  float of_wg[kMaxColumns];
};

template <typename T, typename G>
struct VJPColumns {
  Columns<T> x;
  Columns<G> cotangent;
  const float* weight; // null: ones

  Floats weight_of(int64_t c) const {
    return splat(weight ? weight[c] : 1.0f);
  }
};

// The sums of wg * n, where those of wg * d, of the deviations from the first
// shift, are too far off or beyond float32.
template <bool kCenter, typename T, typename G>
[[gnu::noinline]] void mend_means(
    VJPColumns<T, G> in,
    int64_t columns,
    const ColumnStatistics& stats,
    GradientMeans& means) {
  ColumnTotals<1> totals;
  sum_channels(
      in.x.channels,
      columns,
      totals,
      [in, &stats](int64_t, int64_t i, auto extent) {
        VectorStatistics<kCenter> of(stats, i);
        return [=](int64_t c) {
          Floats v = load(in.x.data + c * in.x.step + i, extent);
          auto* g = in.cotangent.data + c * in.cotangent.step + i;
          Floats wg = load(g, extent) * in.weight_of(c);
          return Term<1>{wg * of.normalize(v)};
        };
      });
  auto count = static_cast<float>(in.x.channels);
  for (int64_t i = 0; i < columns; ++i) {
    if (stats.lost[i] || !is_finite_float(means.of_wgn[i])) {
      means.of_wgn[i] = totals.of[0][i] / count;
    }
  }
}

// Takes all sums over the channels in one pass, those with the cotangent of
// deviations, too.
template <bool kCenter, typename T, typename G>
inline void measure_columns(
    VJPColumns<T, G> in,
    int64_t columns,
    Root root,
    ColumnStatistics& stats,
    GradientMeans& means) {
  constexpr int kSums = kCenter ? 4 : 2;
  ColumnTotals<kSums> totals;
  set_shifts<kCenter>(in.x, columns, stats);
  sum_channels(
      in.x.channels,
      columns,
      totals,
      [in, &stats](int64_t first, int64_t i, auto extent) {
        Floats shift = load(stats.shift + i);
        auto x_ahead = in.x.ahead(first, kChannelsAtOnce);
        auto g_ahead = in.cotangent.ahead(first, kChannelsAtOnce);
        return [=](int64_t c) {
          auto* x = in.x.data + c * in.x.step + i;
          auto* g = in.cotangent.data + c * in.cotangent.step + i;
          __builtin_prefetch(x + x_ahead);
          __builtin_prefetch(g + g_ahead);
          Floats v = load(x, extent);
          Floats wg = load(g, extent) * in.weight_of(c);
          if constexpr (kCenter) {
            Floats d = v - shift;
            return Term<4>{d * d, d, wg * d, wg};
          } else {
            return Term<2>{v * v, wg * v};
          }
        };
      });
  set_statistics<kCenter>(in.x, columns, root, totals, stats);
  auto count = static_cast<float>(in.x.channels);
  bool any = false;
  for (int64_t i = 0; i < columns; ++i) {
    float of_wg = kCenter ? totals.of[kSums - 1][i] / count : 0.0f;
    float of_wgd = totals.of[1 + kCenter][i] / count - stats.mean[i] * of_wg;
    means.of_wg[i] = of_wg;
    means.of_wgn[i] = of_wgd * stats.rstd[i];
    any |= stats.lost[i] || !is_finite_float(means.of_wgn[i]);
  }
  if (any) {
    mend_means<kCenter>(in, columns, stats, means);
  }
  for (int64_t i = 0; i < columns; ++i) {
    means.of_wgn[i] = is_constant(root, stats.rstd[i]) ? 0.0f : means.of_wgn[i];
  }
}

// The sums over some columns of a channel's g * n and g.
struct ChannelSums {
  Floats of_weight[kVectors];
  Floats of_bias[kVectors];
};

// Sums of a parameter's gradient that are to be added.
struct alignas(64) PendingSums {
  float of[kChannelsAtOnce];

  // Those of the channels from `first`.
  void add_to(CompensatedSum to, int64_t first) const {
    for (int j = 0; to.sum && j < kChannelsAtOnce; j += kWidth) {
      add_compensated(to, first + j, load(of + j));
    }
  }
};

// Stores the input's gradient rstd * (wg - mean(wg) - n * mean(wg * n)), if it
// is wanted; without center there is no mean(wg). The parameters' are summed
// over the columns, some of them at a time.
template <bool kCenter, bool kSums, typename T, typename G>
inline void columns_gradients(
    const ChannelNormVJPJob& job,
    VJPColumns<T, G> in,
    const ColumnStatistics& stats,
    const GradientMeans& means) {
  constexpr int64_t kParts = kMaxColumns / kSumColumns;
  PendingSums of_weights[kParts] = {}, of_biases[kParts] = {};
  auto columns = job.columns, channels = job.channels;
  auto count = channels_ahead<T>(columns);
  for (int64_t c = 0; c < channels; ++c) {
    auto* x = in.x.data + c * in.x.step;
    auto* g = in.cotangent.data + c * in.cotangent.step;
    auto* to = static_cast<T*>(job.input.data);
    to = to ? to + c * job.input_step : nullptr;
    auto x_ahead = in.x.ahead(c, count);
    auto g_ahead = in.cotangent.ahead(c, count);
    auto to_ahead = x_ahead ? count * job.input_step : 0;
    Floats w = in.weight_of(c);
    auto vector = [=, &stats, &means](
                      int64_t i, auto extent, int j, auto& sums) {
      __builtin_prefetch(x + x_ahead + i);
      __builtin_prefetch(g + g_ahead + i);
      VectorStatistics<kCenter> of(stats, i);
      Floats n = of.normalize(load(x + i, extent));
      Floats cotangent = load(g + i, extent);
      if (kSums) {
        sums.of_weight[j] += cotangent * n;
        sums.of_bias[j] += cotangent;
      }
      if (!to) {
        return;
      }
      __builtin_prefetch(to + to_ahead + i, 1);
      Floats d = cotangent * w - n * load(means.of_wgn + i);
      if constexpr (kCenter) {
        d = d - load(means.of_wg + i);
      }
      store(to + i, d * of.rstd, extent);
    };
    for (int64_t part = 0, i = 0; i < columns; ++part) {
      auto left = columns - i;
      auto end = i + (left < kSumColumns ? left : kSumColumns);
      ChannelSums sums = {};
      for (; i + kLanes <= end; i += kLanes) {
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) {
          vector(i + j * kWidth, Whole{}, j, sums);
        }
      }
      if (i < end) { // apart, so that the loop's sums stay in registers
        ChannelSums rest = sums;
        for_vectors(end - i, [&, first = i](int64_t k, auto extent) {
          vector(first + k, extent, static_cast<int>(k / kWidth), rest);
        });
        sums = rest;
      }
      i = end;
      if (kSums) {
        of_weights[part].of[c % kChannelsAtOnce] = sum_lanes(sums.of_weight);
        of_biases[part].of[c % kChannelsAtOnce] = sum_lanes(sums.of_bias);
      }
    }
    if (kSums && ((c + 1) % kChannelsAtOnce == 0 || c + 1 == channels)) {
      auto first = c / kChannelsAtOnce * kChannelsAtOnce;
      for (int64_t part = 0; part * kSumColumns < columns; ++part) {
        of_weights[part].add_to(job.weight_gradients[part], first);
        of_biases[part].add_to(job.bias_gradients[part], first);
      }
    }
  }
}

template <typename T, typename G, bool kCenter>
void columns_vjp(const ChannelNormVJPJob& job) {
  ColumnStatistics stats;
  GradientMeans means;
  VJPColumns<T, G> in{
      {job.x, job.channels}, {job.cotangent, job.channels}, job.weight};
  measure_columns<kCenter>(in, job.columns, job.root, stats, means);
  bool sums = job.weight_gradients[0].sum || job.bias_gradients[0].sum;
  with_flag(sums, [&](auto flag) {
    columns_gradients<kCenter, flag.value>(job, in, stats, means);
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
