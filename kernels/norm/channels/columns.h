// Copyright (c) 2026 mlx_norms contributors
//
// Norms over channels that are `inner` elements apart. What is normalized at
// once is a column: the channels at one place. A thread has N adjoining
// columns, of which it takes every channel_lanes()-th channel:
//
//   for each chunk, for k < V: channel (k * channel_lanes() + channel_lane)
//
// Adjoining threads have adjoining columns, so that loads coalesce. The order
// of each sum depends only on the number of channels, inner and the dtype.

#pragma once

#include "kernels/norm/statistics.h"

constant int column_lanes [[function_constant(70)]]; // of a SIMD-group
constant int column_simds [[function_constant(71)]]; // of a threadgroup

constant constexpr int kMostPartials = 2048;
constant constexpr int kMostTotals = 256;

inline int channel_lanes() {
  return column_simds * kSimdSize / column_lanes;
}

template <int N>
inline void
load_columns(device const uchar* at, int type, bool vectors, thread float* v) {
  if (N >= 4 && vectors) {
    load_vector<N>(at, 0, type, v);
  } else {
    for (int j = 0; j < N; ++j) {
      v[j] = load(at + j * size_of(type), type);
    }
  }
}

template <int N>
inline void
store_columns(device uchar* at, int type, bool vectors, thread const float* v) {
  if (N >= 4 && vectors) {
    store_vector<N>(at, type, v);
  } else {
    for (int j = 0; j < N; ++j) {
      store(at + j * size_of(type), type, v[j]);
    }
  }
}

template <int N>
inline void round_columns(int type, thread float* v) {
  if (N >= 4) {
    round_vector<N>(type, v);
  } else {
    for (int j = 0; j < N; ++j) {
      v[j] = round_to(float4(v[j], 0.0f, 0.0f, 0.0f), type).x;
    }
  }
}

// A thread's place in its threadgroup and in the array.
struct ColumnThread {
  int simd;
  int lane;
  bool there;  // or past the last place, where columns are of zeros
  uint outer;  // of the array's axes before the channels
  uint within; // the first column, of those that follow the channels
  threadgroup float* partials; // kMostPartials
  threadgroup float* totals;   // kMostTotals

  int column_lane() const {
    return lane % column_lanes;
  }
  int channel_lane() const {
    return (simd * kSimdSize + lane) / column_lanes;
  }
  int channel(int chunk, int k) const {
    return chunk + k * channel_lanes() + channel_lane();
  }

  // The sums over the channels' threads of M values each, returned to them.
  template <int M>
  void add_up(thread float* v) const {
    for (int j = 0; j < M; ++j) {
      for (int step = kSimdSize / 2; step > 0; step /= 2) {
        v[j] =
            step >= column_lanes ? v[j] + simd_shuffle_xor(v[j], step) : v[j];
      }
    }
    if (column_simds == 1) {
      return;
    }
    int width = column_lanes * M;
    if (lane < column_lanes) {
      for (int j = 0; j < M; ++j) {
        partials[simd * width + j * column_lanes + lane] = v[j];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = simd * kSimdSize + lane; i < width;
         i += column_simds * kSimdSize) {
      float total = 0.0f;
      for (int other = 0; other < column_simds; ++other) {
        total += partials[other * width + i];
      }
      totals[i] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int j = 0; j < M; ++j) {
      v[j] = totals[j * column_lanes + column_lane()];
    }
  }
};

// `place` counts vectors of N columns.
template <int N>
inline ColumnThread make_column_thread(
    uint place,
    uint places,
    uint inner,
    int simd,
    int lane,
    threadgroup float* partials,
    threadgroup float* totals) {
  bool there = place < places;
  uint column = there ? place * N : 0;
  return ColumnThread{
      simd, lane, there, column / inner, column % inner, partials, totals};
}

// N columns of an array; those that fit are held in registers.
template <int N, int V>
struct Columns {
  device const uchar* first; // of channel 0
  long step;                 // from channel to channel, in bytes
  int type;
  bool vectors;
  float held[N == 8 ? 1 : V * N];
  uint4 bits[N == 8 ? V : 1]; // of 16-bit values

  void begin(
      device const uchar* data,
      int flags,
      constant const int* layout,
      thread const ColumnThread& threads) {
    type = float_type(flags);
    vectors = flags & kVectors;
    long at = row_begin(layout, threads.outer) + long(threads.within);
    first = data + at * size_of(type);
    step = long(layout[kStep]) * size_of(type);
  }

  bool contains(thread const ColumnThread& threads, int channel, int channels) {
    return threads.there && channel < channels;
  }

  // Channel k of a chunk, or zeros. Where all are held, a channel past the last
  // one is the thread's first one again, instead of a branch.
  void read_channel(
      thread const ColumnThread& threads,
      int k,
      int channel,
      int channels,
      thread float* v) {
    bool within = channel < channels;
    if (threads.there && (within || !looped)) {
      device const uchar* at =
          first + (within ? channel : threads.channel_lane()) * step;
      if (N == 8 && vectors) {
        bits[N == 8 && !looped ? k : 0] = *(device const uint4*)at;
        unpack<N>(bits[N == 8 && !looped ? k : 0], type, v);
      } else {
        load_columns<N>(at, type, vectors, v);
        hold(k, v);
      }
    }
    if (!threads.there || !within) {
      clear<N>(v);
    }
  }

  // The same again.
  void get_channel(
      thread const ColumnThread& threads,
      int k,
      int channel,
      int channels,
      thread float* v) {
    if (looped) {
      read_channel(threads, k, channel, channels, v);
    } else if (!contains(threads, channel, channels)) {
      clear<N>(v);
    } else if (N == 8) {
#ifdef __CUDACC__
      keep_packed(bits[N == 8 ? k : 0]);
#endif
      unpack<N>(bits[N == 8 ? k : 0], type, v);
    } else {
      for (int j = 0; j < N; ++j) {
        v[j] = held[N == 8 ? 0 : k * N + j];
      }
    }
  }

  void hold(int k, thread const float* v) {
    if (looped) {
      return;
    }
    if (N == 8) {
      bits[N == 8 ? k : 0] = pack(v, type);
      return;
    }
    for (int j = 0; j < N; ++j) {
      held[N == 8 ? 0 : k * N + j] = v[j];
    }
  }
};

inline bool next_channels(int chunk, int channels) {
  return chunk == 0 || (looped && chunk < channels);
}

template <int N>
struct ColumnStatistics {
  float mean[N];
  float correction[N]; // see Statistics
  float rstd[N];

  float normalized_value(int j, float v) const {
    return center ? (v - mean[j] - correction[j]) * rstd[j] : v * rstd[j];
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
    thread float* means) {
  clear<2 * N>(means);
  for (int chunk = 0; next_channels(chunk, channels);
       chunk += V * channel_lanes()) {
    for (int k = 0; k < V; ++k) {
      int channel = threads.channel(chunk, k);
      float v[N];
      columns.get_channel(threads, k, channel, channels, v);
      for (int j = 0; j < N; ++j) {
        float d = v[j] - stats.mean[j] - stats.correction[j];
        d = columns.contains(threads, channel, channels) ? d : 0.0f;
        means[j] += d;
        means[N + j] = fma(d, d, means[N + j]);
      }
    }
  }
  threads.add_up<2 * N>(means);
  for (int j = 0; j < 2 * N; ++j) {
    means[j] /= float(channels);
  }
}

// Reads the columns, and holds them unless they are looped.
template <int N, int V>
inline ColumnStatistics<N> column_statistics(
    thread const ColumnThread& threads,
    thread Columns<N, V>& columns,
    int channels,
    float eps) {
  float means[2 * N]; // of squares, then of values
  clear<2 * N>(means);
  for (int chunk = 0; next_channels(chunk, channels);
       chunk += V * channel_lanes()) {
    for (int k = 0; k < V; ++k) {
      float v[N];
      columns.read_channel(threads, k, threads.channel(chunk, k), channels, v);
      for (int j = 0; j < N; ++j) {
        means[j] = fma(v[j], v[j], means[j]);
        means[N + j] += v[j];
      }
    }
  }
  ColumnStatistics<N> stats;
  if (!center) {
    threads.add_up<N>(means);
    for (int j = 0; j < N; ++j) {
      stats.mean[j] = stats.correction[j] = 0.0f;
      stats.rstd[j] = precise::rsqrt(means[j] / float(channels) + eps);
    }
    return stats;
  }
  threads.add_up<2 * N>(means);
  float variance[N];
  bool lost[N];
  bool any_lost = false;
  for (int j = 0; j < N; ++j) {
    stats.mean[j] = means[N + j] / float(channels);
    stats.correction[j] = 0.0f;
    float square = stats.mean[j] * stats.mean[j];
    variance[j] = means[j] / float(channels) - square;
    lost[j] = is_lost(variance[j], square);
    any_lost = any_lost || lost[j];
  }
  // Every SIMD-group has all columns, so all of them take the same branch.
  if (simd_any(any_lost)) {
    deviation_means<N, V>(threads, columns, channels, stats, means);
    any_lost = false;
    for (int j = 0; j < N; ++j) {
      float of_d = means[j];
      float rest = means[N + j] - of_d * of_d;
      stats.correction[j] = lost[j] ? of_d : 0.0f;
      variance[j] = lost[j] ? rest : variance[j];
      lost[j] = lost[j] && is_lost(rest, of_d * of_d);
      any_lost = any_lost || lost[j];
    }
    if (simd_any(any_lost)) {
      deviation_means<N, V>(threads, columns, channels, stats, means);
      for (int j = 0; j < N; ++j) {
        float rest = finite_or_nan(means[N + j] - means[j] * means[j]);
        stats.correction[j] += lost[j] ? means[j] : 0.0f;
        variance[j] = lost[j] ? rest : variance[j];
      }
    }
  }
  for (int j = 0; j < N; ++j) {
    stats.rstd[j] = precise::rsqrt(variance[j] + eps);
  }
  return stats;
}
