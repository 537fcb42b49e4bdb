// Copyright (c) 2026 mlx_norms contributors
//
// Norms of [samples, positions, channels] over all positions of a group of
// channels. A threadgroup takes a chunk of a sample's positions and a block of
// its channels: a row of `lanes` threads has N channels each of a position,
// and there are `rows` of them. How many positions a chunk has follows from
// the sizes of a sample alone.

#pragma once

#include "kernels/common/parameters.h"
#include "kernels/norm/gate.h"

constant bool group_strided [[function_constant]]; // c in group c % groups
constant int group_x_flags [[function_constant]];
constant int group_y_flags [[function_constant]];
// Else they are given, one of each channel: groups are channels, and strided.
constant bool group_has_rest [[function_constant]];
constant int group_mean_flags [[function_constant]];
constant int group_variance_flags [[function_constant]];

constant constexpr int kGroupThreads = 256; // of a threadgroup, at most
constant constexpr int kAtOnce = 4; // positions that a thread loads together

inline int rounded_up_quotient(int a, int b) {
  return (a + b - 1) / b;
}

// Without a division, which takes long, where there is nothing to divide.
inline uint quotient(uint a, uint b) {
  return a < b ? 0 : b == 1 ? a : a / b;
}

struct ChannelThread {
  int channels; // of a position
  int lanes;
  int rows;
  int steps; // positions of a thread
  int chunks;
  uint sample;
  uint chunk;
  int position; // its first one
  int row;
  int channel; // its first one
  int index;   // in the threadgroup
  bool there;  // it has channels
};

// `spread` has, in this order: channels, lanes, rows, steps, blocks, chunks.
template <int N>
inline ChannelThread make_channel_thread(
    uint group,
    uint2 at, // lane and row
    constant const int* spread) {
  int channels = spread[0];
  int lanes = spread[1];
  int rows = spread[2];
  int steps = spread[3];
  int blocks = spread[4];
  int chunks = spread[5];
  uint of_blocks = quotient(group, uint(blocks));
  uint block = group - of_blocks * uint(blocks);
  uint sample = quotient(of_blocks, uint(chunks));
  uint chunk = of_blocks - sample * uint(chunks);
  int channel = (int(block) * lanes + int(at.x)) * N;
  return ChannelThread{
      channels,
      lanes,
      rows,
      steps,
      chunks,
      sample,
      chunk,
      int(chunk) * rows * steps + int(at.y),
      int(at.y),
      channel,
      int(at.y) * lanes + int(at.x),
      channel < channels};
}

// A thread's positions: every `rows`-th one of a sample from `first` on.
template <int N>
struct Positions {
  Span<N> span; // of channels
  int channels;
  uint first_row;
  int first;
  int rows;
  int count; // of the sample

  int at(int step) const thread {
    return first + step * rows;
  }
  bool has(int step) const thread {
    return at(step) < count;
  }
  uint row_at(int step) const thread {
    return first_row + uint(at(step));
  }
};

template <int N>
inline Positions<N> positions_of(ChannelThread t, int positions) {
  return Positions<N>{
      span_at<N>(t.channel, t.channels),
      t.channels,
      t.sample * uint(positions),
      t.position,
      t.rows,
      positions};
}

// The values at COUNT of them from `step` on; zeros past the end.
template <int N, int COUNT>
inline void read_positions(
    Positions<N> of,
    int step,
    device const uchar* data,
    int flags,
    constant const int* layouts,
    thread float* v) {
  for (int k = 0; k < COUNT; ++k) {
    clear<N>(v + k * N);
    if (of.has(step + k)) {
      uint row = of.row_at(step + k);
      read<N>(
          row_in(data, flags, layouts, row, of.channels), of.span, v + k * N);
    }
  }
}

inline int first_channel(int group, int channels, int groups) {
  return group_strided ? group : group * (channels / groups);
}

// The groups of N channels, the last one again past the end.
template <int N>
inline void
groups_of(int channel, int channels, int groups, thread int* group) {
  int size = int(quotient(uint(channels), uint(groups)));
  int cycles = int(quotient(uint(channel), uint(groups)));
  int g = group_strided ? channel - cycles * groups
                        : int(quotient(uint(channel), uint(size)));
  int in_group = group_strided ? 0 : channel - g * size;
  for (int j = 0; j < N; ++j) {
    group[j] = g;
    if (channel + j + 1 < channels) {
      in_group += 1;
      bool next = group_strided || in_group == size;
      in_group = next ? 0 : in_group;
      g += next ? 1 : 0;
      g = group_strided && g == groups ? 0 : g;
    }
  }
}

// Loads what normalizes N channels: x as (x - mean) * rstd + offset. The offset
// is what the mean in float32 lacks.
template <int N>
inline void load_statistics(
    ChannelThread t,
    device const uchar* means,
    device const uchar* rests,
    device const uchar* variances,
    constant const int* layouts,
    int groups,
    float eps,
    thread float* mean,
    thread float* rstd,
    thread float* offset) {
  int channels = t.channels;
  float variance[N], rest[N];
  if (group_has_rest) {
    long first = long(t.sample) * groups;
    int group[N];
    groups_of<N>(t.channel, channels, groups, group);
    for (int j = 0; j < N; ++j) {
      mean[j] = ((device const float*)means + first)[group[j]];
      rest[j] = ((device const float*)rests + first)[group[j]];
      variance[j] = ((device const float*)variances + first)[group[j]];
    }
  } else {
    Span<N> span = span_at<N>(t.channel, channels);
    read<N>(row_in(means, group_mean_flags, layouts, 0, channels), span, mean);
    read<N>(
        row_in(variances, group_variance_flags, layouts, 0, channels),
        span,
        variance);
    clear<N>(rest);
  }
  for (int j = 0; j < N; ++j) {
    rstd[j] = precise::rsqrt(variance[j] + eps);
    offset[j] = -rest[j] * rstd[j];
  }
}

// a + b as their rounded sum, and what is lost by that.
inline void
add_exactly(float a, float b, thread float& sum, thread float& low) {
  sum = a + b;
  float of_b = sum - a;
  low = (a - (sum - of_b)) + (b - of_b);
}

// Divides the factors rstd by a power of two that is larger than all of them,
// and returns it. Times a weight they cannot overflow then; x - mean is
// multiplied by the power first, which rounds nothing. Infinite ones stay.
template <int N>
inline float take_power(thread float* rstd) {
  float most = rstd[0];
  for (int j = 1; j < N; ++j) {
    most = max(most, rstd[j]);
  }
  uint exponent = min((as_type<uint>(most) >> 23) + 1, 250u);
  float inverse = as_type<float>((254 - exponent) << 23);
  for (int j = 0; j < N; ++j) {
    rstd[j] *= inverse;
  }
  return as_type<float>(exponent << 23);
}

// (x - mean) * scale + offset times the weight, of which an infinite one leaves
// no offset.
template <int N>
inline void multiply_by(
    RowIn weight,
    Span<N> span,
    thread float* scale,
    thread float* offset) {
  float w[N];
  read<N>(weight, span, w);
  for (int j = 0; j < N; ++j) {
    scale[j] *= w[j];
    offset[j] = is_finite(w[j]) ? offset[j] * w[j] : 0.0f;
  }
}

// And plus the bias.
template <int N>
inline void add_bias(RowIn bias, Span<N> span, thread float* offset) {
  float b[N];
  read<N>(bias, span, b);
  for (int j = 0; j < N; ++j) {
    offset[j] += b[j];
  }
}

// Where a tree over rows begins: the largest power of two below `rows`, or 1.
inline int half_of_rows(int rows) {
  int half_of = 1;
  while (2 * half_of < rows) {
    half_of *= 2;
  }
  return half_of;
}

// Adds the threads' M sums over the rows of threads; a channel's first thread
// gets them. Each thread calls this.
template <int M>
inline void add_rows(
    thread float* v,
    ChannelThread t,
    threadgroup float* shared) { // M * kGroupThreads
  for (int m = 0; m < M; ++m) {
    shared[m * kGroupThreads + t.index] = v[m];
  }
  for (int half_of = half_of_rows(t.rows); half_of > 0; half_of /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t.row < half_of && t.row + half_of < t.rows) {
      for (int m = 0; m < M; ++m) {
        v[m] += shared[m * kGroupThreads + t.index + half_of * t.lanes];
        shared[m * kGroupThreads + t.index] = v[m];
      }
    }
  }
}
