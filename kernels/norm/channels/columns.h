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

#include "kernels/common/row_threads.h"

constant int column_lanes [[function_constant]]; // of a SIMD-group
constant int column_simds [[function_constant]]; // of a threadgroup
// The leading ones of a thread's channels k that any thread has, and that each
// thread has.
constant int column_count [[function_constant]];
constant int column_full [[function_constant]];
constant bool columns_whole [[function_constant]]; // no SIMD-group has less

constant constexpr int kMaxPartials = 2048;
constant constexpr int kMaxTotals = 256;

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

inline float
load_parameter(device const uchar* of, int type, int step, int channel) {
  return load(of + long(channel) * step * size_of(type), type);
}

// Adds up M values over the lanes that have one channel bit each and share
// columns: lanes with the bit Step keep the upper half of the values.
template <int M, int Step>
inline void share_sums(int lane, thread float* v) {
  if (Step < column_lanes) {
    return;
  }
  if (M == 1) {
    v[0] += simd_shuffle_xor(v[0], Step);
  }
  for (int j = 0; j < M / 2; ++j) {
    v[j] = halves_sum(v[j], v[j + M / 2], lane, Step);
  }
}

// How many of M sums share_sums() leaves to a lane.
template <int M>
inline int sums_per_lane() {
  return max(M * column_lanes / kSimdSize, 1);
}

// Where a SIMD-group's partial sum j of a column is.
template <int M>
inline int partial_at(int j, int column) {
  int count = sums_per_lane<M>();
  return (j / count * column_lanes + column) * count + j % count;
}

// Where value j of a column is in `totals`, so that vectors can be read.
template <int M>
inline int total_at(int j, int column) {
  return M % 4 == 0 ? (j / 4 * column_lanes + column) * 4 + j % 4
                    : j * column_lanes + column;
}

// A thread's place in its threadgroup and in the array.
struct ColumnThread {
  int simd;
  int lane;
  bool there;  // or past the last place, where columns are of zeros
  uint outer;  // of the array's axes before the channels
  uint within; // the first column, of those that follow the channels
  threadgroup float4* partials; // kMaxPartials floats
  threadgroup float4* totals;   // kMaxTotals floats

  int index() const thread {
    return simd * kSimdSize + lane;
  }
  int column_lane() const thread {
    return lane % column_lanes;
  }
  int channel_lane() const thread {
    return index() / column_lanes;
  }
  // Whether the array has this thread's channel k of a chunk.
  bool has_channel(int chunk, int k, int channels) const thread {
    bool within = k < column_full ||
        chunk + k * channel_lanes() + channel_lane() < channels;
    return there && within;
  }

  // The sums over the channels' lanes of M values each.
  template <int M>
  void add_lanes(thread float* v) const thread {
    for (int j = 0; j < M; ++j) {
      for (int step = kSimdSize / 2; step > 0; step /= 2) {
        v[j] =
            step >= column_lanes ? v[j] + simd_shuffle_xor(v[j], step) : v[j];
      }
    }
  }

  // Stores the SIMD-groups' sums.
  template <int M>
  void store_partials(thread float* v) const thread {
    share_sums<M, 16>(lane, v);
    share_sums<(M > 2 ? M / 2 : 1), 8>(lane, v);
    share_sums<(M > 4 ? M / 4 : 1), 4>(lane, v);
    share_sums<(M > 8 ? M / 8 : 1), 2>(lane, v);
    share_sums<(M > 16 ? M / 16 : 1), 1>(lane, v);
    int width = M * column_lanes;
    int count = sums_per_lane<M>();
    int same = max(kSimdSize / width, 1); // lanes that have the same sum
    int part = lane / column_lanes;
    if (part % same == 0) {
      threadgroup float* to = (threadgroup float*)partials + simd * width +
          (part / same * column_lanes + column_lane()) * count;
      for (int j = 0; j < M; ++j) {
        if (j < count) {
          to[j] = v[j];
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  // The sum of value j of a column.
  template <int M>
  float total_of(int j, int column) const thread {
    threadgroup const float* of =
        (threadgroup const float*)partials + partial_at<M>(j, column);
    float total = 0.0f;
    for (int other = 0; other < column_simds; ++other) {
      total += of[other * M * column_lanes];
    }
    return total;
  }

  // Gives each thread its columns' M values of `totals`.
  template <int M>
  void load_totals(thread float* v) const thread {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (M % 4 == 0) {
      for (int j = 0; j < M / 4; ++j) {
        put(v + 4 * j, totals[j * column_lanes + column_lane()]);
      }
    } else {
      for (int j = 0; j < M; ++j) {
        v[j] =
            ((threadgroup const float*)totals)[total_at<M>(j, column_lane())];
      }
    }
  }

  // The means over the channels, of which each thread has sums.
  template <int M>
  void average(int channels, thread float* v) const thread {
    if (column_simds == 1) {
      add_lanes<M>(v);
      for (int j = 0; j < M; ++j) {
        v[j] /= float(channels);
      }
      return;
    }
    store_partials<M>(v);
    int count = sums_per_lane<M>();
    for (int i = index(); i < M * column_lanes; i += column_simds * kSimdSize) {
      int of = i / count; // adjoining threads read adjoining sums
      int j = of / column_lanes * count + i % count;
      int column = of % column_lanes;
      ((threadgroup float*)totals)[total_at<M>(j, column)] =
          total_of<M>(j, column) / float(channels);
    }
    load_totals<M>(v);
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
    threadgroup float4* partials,
    threadgroup float4* totals) {
  bool there = columns_whole || place < places;
  uint column = there ? place * N : 0;
  uint outer = column / inner;
  return ColumnThread{
      simd, lane, there, outer, column - outer * inner, partials, totals};
}

enum ChannelFlags {
  kOneAxis = kTwoAxes // in its place: no size of the layout is needed
};

// N columns of an array, which has a layout; those that fit are held in
// registers.
template <int N, int V>
struct Columns {
  device const uchar* first; // of the thread's first channel
  long step;                 // from channel to channel, in bytes
  int type;
  bool vectors;
  float held[N == 8 ? 1 : V * N];
  uint4 bits[N == 8 ? V : 1]; // of 16-bit values

  void begin(
      device const uchar* data,
      int flags,
      constant const int* layouts,
      thread const ColumnThread& threads) thread {
    type = float_type(flags);
    vectors = flags & kVectors;
    constant const int* layout = layouts + layout_begin(flags);
    step = long(layout[kStep]) * size_of(type);
    long at = flags & kOneAxis ? long(threads.outer) * layout[kStride0]
                               : row_begin(layout, threads.outer);
    first = data + (at + long(threads.within)) * size_of(type) +
        threads.channel_lane() * step;
  }

  // Channel k of a chunk, or zeros. Where all are held, a channel past the last
  // one is the thread's first one again, instead of a branch.
  void read_channel(
      thread const ColumnThread& threads,
      int chunk,
      int k,
      int channels,
      thread float* v) thread {
    bool within = threads.has_channel(chunk, k, channels);
    if (within || (threads.there && !looped)) {
      device const uchar* at =
          first + (within ? chunk + k * channel_lanes() : 0) * step;
      if (N == 8 && vectors) {
        bits[N == 8 && !looped ? k : 0] = *(device const uint4*)at;
        unpack<N>(bits[N == 8 && !looped ? k : 0], type, v);
      } else {
        load_columns<N>(at, type, vectors, v);
        hold(k, v);
      }
    }
    if (!within) {
      clear<N>(v);
    }
  }

  // Reads the columns that get_channel() returns, if they are not looped.
  void hold_all(thread const ColumnThread& threads, int channels) thread {
    for (int k = 0; k < V; ++k) {
      float v[N];
      if (k < column_count) {
        read_channel(threads, 0, k, channels, v);
      }
    }
  }

  // The same again.
  void get_channel(
      thread const ColumnThread& threads,
      int chunk,
      int k,
      int channels,
      thread float* v) thread {
    if (looped) {
      read_channel(threads, chunk, k, channels, v);
      return;
    }
    if (N == 8) {
#ifdef __CUDACC__
      keep_packed(bits[N == 8 ? k : 0]);
#endif
      unpack<N>(bits[N == 8 ? k : 0], type, v);
    } else {
      for (int j = 0; j < N; ++j) {
        v[j] = held[N == 8 ? 0 : k * N + j];
      }
    }
    if (!threads.has_channel(chunk, k, channels)) {
      clear<N>(v);
    }
  }

  void hold(int k, thread const float* v) thread {
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
