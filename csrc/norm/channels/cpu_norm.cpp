// Copyright © 2026 mlx_norms contributors
//
// Norms over channels, on columns that adjoin.

#include "csrc/cpu/activations.h"
#include "csrc/norm/channels/columns.h"

namespace {

using mlx_norms::cpu::ChannelNormJob;

template <typename T, typename Y, bool kCenter, Activation kActivation>
void normalize_columns(const ChannelNormJob& job) {
  ColumnStatistics stats;
  ColumnTotals<1 + kCenter> totals;
  Columns<T> x(job.x, job.channels);
  auto columns = job.columns;
  set_shifts<kCenter>(x, columns, stats);
  sum_deviations<kCenter>(x, columns, stats, totals);
  set_statistics<kCenter>(x, columns, job.root, totals, stats);
  bool late = job.late, has_bias = job.bias;
  bool squares = job.activation == Activation::Relu2;
  auto count = channels_ahead<T>(columns);
  for (int64_t c = 0; c < job.channels; ++c) {
    auto* from = x.data + c * x.step;
    auto* to = static_cast<Y*>(job.normalized.data) + c * job.normalized_step;
    auto ahead = x.ahead(c, count);
    auto to_ahead = ahead ? count * job.normalized_step : 0;
    Floats weight = splat(job.weight ? job.weight[c] : 1.0f);
    Floats bias = splat(has_bias ? job.bias[c] : 0.0f);
    for_vectors(columns, [=, &stats](int64_t i, auto extent) {
      __builtin_prefetch(from + ahead + i);
      __builtin_prefetch(to + to_ahead + i, 1);
      VectorStatistics<kCenter> of(stats, i);
      Floats y = of.normalize(load(from + i, extent));
      if (!late) {
        y = round_to<Y>(y);
      }
      y = y * weight;
      if (has_bias) {
        y = y + bias;
      }
      if constexpr (kActivation != Activation::None) {
        y = late ? activated<kActivation, float>(y)
                 : activated<kActivation, Y>(round_to<Y>(y));
      } else if (squares) {
        y = activated<Activation::Relu2, float>(late ? y : round_to<Y>(y));
      }
      store(to + i, y, extent);
    });
  }
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void channel_norm(const ChannelNormJob& job) {
  // What is cheap is none: it takes no loop of its own.
  auto own = is_cheap(job.activation) ? Activation::None : job.activation;
  with_type(job.x.type, [&](auto x) {
    using T = typename decltype(x)::type;
    with_type(job.normalized.type, [&](auto y) {
      using Y = typename decltype(y)::type;
      with_flag(job.center, [&](auto center) {
        with_activation(own, [&]<Activation kOwn>(ActivationFlag<kOwn>) {
          if constexpr (kOwn != Activation::Relu2) {
            normalize_columns<T, Y, center.value, kOwn>(job);
          }
        });
      });
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
