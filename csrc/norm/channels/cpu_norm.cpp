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
  for_channels(job.channels, [&](int64_t first, int64_t end) {
    for (int64_t i = 0; i < job.columns; i += kWidth) {
      VectorStatistics<kCenter> of(stats, i);
      for (auto c = first; c < end; ++c) {
        Floats y = of.normalize(x.taken(c, i));
        if (!job.late) {
          y = round_to<Y>(y);
        }
        if (job.weight) {
          y = y * splat(job.weight[c]);
        }
        if (job.bias) {
          y = y + splat(job.bias[c]);
        }
        store_part(out + c * job.normalized_step, i, job.columns, y);
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
