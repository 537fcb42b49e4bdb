// Copyright © 2026 mlx_norms contributors
//
// Norms over channels, on columns that adjoin.

#include "csrc/norm/channels/packed_columns.h"

namespace {

using mlx_norms::cpu::ChannelNormJob;

template <typename T, typename Y, bool kCenter>
void normalize_columns(const ChannelNormJob& job) {
  ColumnStatistics stats;
  Columns<T> x(job.x, job.channels, job.columns, job.packed);
  column_statistics<T, kCenter>(x, job.channels, job.columns, job.eps, stats);
  auto* out = static_cast<Y*>(job.normalized.data);
  auto step = job.normalized_step, columns = job.columns;
  auto *weight = job.weight, *bias = job.bias;
  bool late = job.late;
  for_channels(job.channels, [=, &stats](int64_t first, int64_t end) {
    for (int64_t i = 0; i < columns; i += kWidth) {
      VectorStatistics<kCenter> of(stats, i);
      for (auto c = first; c < end; ++c) {
        Floats y = of.normalize(x.taken(c, i));
        if (!late) {
          y = round_to<Y>(y);
        }
        if (weight) {
          y = y * splat(weight[c]);
        }
        if (bias) {
          y = y + splat(bias[c]);
        }
        store_part(out + c * step, i, columns, y);
      }
    }
  });
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

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
