// Copyright (c) 2026 mlx_norms contributors
//
// The means and standard deviations of columns, of which each thread has some
// channels.

#pragma once

#include "kernels/norm/channels/columns.h"
#include "kernels/norm/statistics.h"

template <int N>
struct ColumnStatistics {
  float mean[N];
  float shift[N]; // of a normalized value, by what rounding leaves of the mean
  float rstd[N];

  float normalized_value(int j, float v) const thread {
    return center ? fma(v - mean[j], rstd[j], shift[j]) : v * rstd[j];
  }
};

// 1 / the standard deviation, or NaN if the variance is lost (is_lost). If all
// values are rounded to 16 bits, it may lose some digits.
inline float rstd_of(float square_mean, float mean, bool rounded, float eps) {
  if (!center) {
    return root_factor(square_mean, eps);
  }
  float square = mean * mean;
  float variance = square_mean - square;
  bool lost = is_lost(variance, rounded ? square / 256.0f : square);
  return lost ? as_type<float>(0x7fc00000u) : precise::rsqrt(variance + eps);
}

// From a thread's sums of squares and, to center, of values: 1 / the standard
// deviations or root mean squares, and means. One thread computes a column's.
template <int N, int M>
inline void share_statistics(
    thread const ColumnThread& threads,
    int channels,
    bool rounded,
    float eps,
    thread float* sums) {
  float count = float(channels);
  if (column_simds == 1) {
    threads.add_lanes<M>(sums);
    for (int j = 0; j < N; ++j) {
      float square = sums[j] / count;
      float mean = M > N ? sums[M - N + j] / count : 0.0f;
      sums[M - N + j] = mean;
      sums[j] = rstd_of(square, mean, rounded, eps);
    }
    return;
  }
  threads.store_partials<M>(sums);
  threadgroup float* totals = (threadgroup float*)threads.totals;
  int adjoining = min(sums_per_lane<M>(), N);
  for (int i = threads.index(); i < N * column_lanes;
       i += column_simds * kSimdSize) {
    int of = i / adjoining;
    int j = of / column_lanes * adjoining + i % adjoining;
    int column = of % column_lanes;
    float square = threads.total_of<M>(j, column) / count;
    float mean = 0.0f;
    if (M > N) {
      mean = threads.total_of<M>(M - N + j, column) / count;
      totals[total_at<M>(M - N + j, column)] = mean;
    }
    totals[total_at<M>(j, column)] = rstd_of(square, mean, rounded, eps);
  }
  threads.load_totals<M>(sums);
}

template <int M>
inline void move_into(thread float* from, thread float* to) {
  for (int i = 0; i < M; ++i) {
    to[i] += from[i];
    from[i] = 0.0f;
  }
}

// Sums over a thread's channels: of a chunk, of 16 chunks, and of all. One sum
// of hundreds of equal values would be rounded in one direction each time. To
// center takes twice as many sums, for which registers are few: they are one.
template <int M>
struct ChunkedSums {
  float chunk[M];
  float chunks[M];
  float all[M];
  int ended;

  void begin() thread {
    clear<M>(chunk);
    clear<M>(chunks);
    clear<M>(all);
    ended = 0;
  }

  void end_chunk() thread {
    if (center || !looped) {
      return; // one sum
    }
    move_into<M>(chunk, chunks);
    if (++ended % 16 == 0) {
      move_into<M>(chunks, all);
    }
  }

  thread float* end() thread {
    for (int i = 0; i < M; ++i) {
      all[i] = center || !looped ? chunk[i] : all[i] + chunks[i];
    }
    return all;
  }
};

// The means over the channels of the deviations from mean + correction and of
// their squares.
template <int N, int V>
inline void deviation_means(
    thread const ColumnThread& threads,
    thread Columns<N, V>& columns,
    int channels,
    thread const ColumnStatistics<N>& stats,
    thread const float* correction,
    thread float* means) {
  clear<2 * N>(means);
  for (int chunk = 0; next_channels(chunk, channels);
       chunk += V * channel_lanes()) {
    for (int k = 0; k < V; ++k) {
      if (k >= column_count) {
        continue;
      }
      float v[N];
      columns.get_channel(threads, chunk, k, channels, v);
      bool within = threads.has_channel(chunk, k, channels);
      for (int j = 0; j < N; ++j) {
        float d = v[j] - stats.mean[j] - correction[j];
        d = within ? d : 0.0f;
        means[j] += d;
        means[N + j] = fma(d, d, means[N + j]);
      }
    }
  }
  threads.average<2 * N>(channels, means);
}

// Computes lost variances from the deviations.
template <int N, int V>
inline void restore_lost(
    thread const ColumnThread& threads,
    thread Columns<N, V>& columns,
    int channels,
    float eps,
    thread ColumnStatistics<N>& stats) {
  float correction[N];
  clear<N>(correction);
  float means[2 * N];
  deviation_means<N, V>(threads, columns, channels, stats, correction, means);
  bool any_lost = false;
  for (int j = 0; j < N; ++j) {
    float square = means[j] * means[j];
    float rest = means[N + j] - square;
    if (is_nan(stats.rstd[j])) {
      correction[j] = means[j];
      bool lost = is_lost(rest, square);
      stats.rstd[j] = lost ? stats.rstd[j] : precise::rsqrt(rest + eps);
      any_lost = any_lost || lost;
    }
  }
  if (simd_any(any_lost)) {
    deviation_means<N, V>(threads, columns, channels, stats, correction, means);
    for (int j = 0; j < N; ++j) {
      float rest = finite_or_nan(means[N + j] - means[j] * means[j]);
      if (is_nan(stats.rstd[j])) {
        correction[j] += means[j];
        stats.rstd[j] = precise::rsqrt(rest + eps);
      }
    }
  }
  for (int j = 0; j < N; ++j) {
    stats.shift[j] =
        correction[j] == 0.0f ? 0.0f : -correction[j] * stats.rstd[j];
  }
}

// Reads the columns, and holds them unless they are looped.
template <int N, int V>
inline ColumnStatistics<N> column_statistics(
    thread const ColumnThread& threads,
    thread Columns<N, V>& columns,
    int channels,
    bool rounded,
    float eps) {
  ChunkedSums<2 * N> chunked; // of squares, then of values
  chunked.begin();
  for (int chunk = 0; next_channels(chunk, channels);
       chunk += V * channel_lanes()) {
    for (int k = 0; k < V; ++k) {
      if (k >= column_count) {
        continue;
      }
      float v[N];
      columns.read_channel(threads, chunk, k, channels, v);
      for (int j = 0; j < N; ++j) {
        chunked.chunk[j] = fma(v[j], v[j], chunked.chunk[j]);
        chunked.chunk[N + j] += v[j];
      }
    }
    chunked.end_chunk();
  }
  thread float* sums = chunked.end();
  ColumnStatistics<N> stats;
  clear<N>(stats.mean);
  clear<N>(stats.shift);
  if (!center) {
    share_statistics<N, N>(threads, channels, rounded, eps, sums);
    for (int j = 0; j < N; ++j) {
      stats.rstd[j] = sums[j];
    }
    return stats;
  }
  share_statistics<N, 2 * N>(threads, channels, rounded, eps, sums);
  bool any_lost = false;
  for (int j = 0; j < N; ++j) {
    stats.rstd[j] = sums[j];
    stats.mean[j] = sums[N + j];
    any_lost = any_lost || is_nan(stats.rstd[j]);
  }
  // Every SIMD-group has all columns, so all of them take the same branch.
  if (simd_any(any_lost)) {
    restore_lost<N, V>(threads, columns, channels, eps, stats);
  }
  return stats;
}
