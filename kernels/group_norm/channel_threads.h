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

constant bool group_strided [[function_constant(40)]]; // c in group c % groups
constant int group_x_flags [[function_constant(41)]];
// Else they are given, one of each channel: groups are channels, and strided.
constant bool group_has_rest [[function_constant(43)]];
constant int group_mean_flags [[function_constant(44)]];
constant int group_variance_flags [[function_constant(45)]];

constant constexpr int kGroupThreads = 256; // of a threadgroup, at most
constant constexpr int kAtOnce = 4; // positions that a thread loads together

inline int rounded_up_quotient(int a, int b) {
  return (a + b - 1) / b;
}

struct ChannelThread {
  uint sample;
  uint chunk;
  int position; // its first one
  int row;
  int channel; // its first one
  bool there;  // it has channels and positions
};

template <int N>
inline ChannelThread make_channel_thread(
    uint group,
    int index,
    int channels,
    int positions,
    int lanes,
    int rows,
    int steps) {
  uint blocks = rounded_up_quotient(rounded_up_quotient(channels, N), lanes);
  uint chunks = rounded_up_quotient(positions, rows * steps);
  uint block = group % blocks;
  uint chunk = group / blocks % chunks;
  int row = index / lanes;
  int channel = (int(block) * lanes + index % lanes) * N;
  return ChannelThread{
      group / blocks / chunks,
      chunk,
      int(chunk) * rows * steps + row,
      row,
      channel,
      row < rows && channel < channels};
}

// The group of a channel, and its first channel.
inline int group_of(int channel, int channels, int groups) {
  return group_strided ? channel % groups : channel / (channels / groups);
}
inline int first_channel(int group, int channels, int groups) {
  return group_strided ? group : group * (channels / groups);
}

inline float load_channel(
    device const uchar* data,
    int flags,
    constant const int* layout,
    uint row,
    int channel,
    int channels) {
  RowIn in = row_in(data, flags, layout, row, channels);
  return load(in.data + long(channel) * in.step * size_of(in.type), in.type);
}

// The values of a parameter for N channels, the last one again past the end.
template <int N>
inline void load_parameter(
    device const uchar* data,
    int flags,
    int step,
    int channel,
    int channels,
    thread float* v) {
  int type = float_type(flags);
  for (int j = 0; j < N; ++j) {
    long at = long(min(channel + j, channels - 1)) * step;
    v[j] = load(data + at * size_of(type), type);
  }
}

// Of N channels: x is normalized as ((x - mean) - rest) * rstd.
template <int N>
inline void load_statistics(
    ChannelThread t,
    device const uchar* means,
    device const uchar* rests,
    device const uchar* variances,
    int mean_step,
    int variance_step,
    int channels,
    int groups,
    float eps,
    thread float* mean,
    thread float* rest,
    thread float* rstd) {
  int m_type = float_type(group_mean_flags);
  int v_type = float_type(group_variance_flags);
  for (int j = 0; j < N; ++j) {
    int c = min(t.channel + j, channels - 1);
    long of = group_of(c, channels, groups);
    of += group_has_rest ? long(t.sample) * groups : 0;
    mean[j] = load(means + of * mean_step * size_of(m_type), m_type);
    rest[j] = group_has_rest ? load(rests + of * 4, kFloat32) : 0.0f;
    float variance =
        load(variances + of * variance_step * size_of(v_type), v_type);
    rstd[j] = precise::rsqrt(variance + eps);
  }
}

// Adds the threads' M sums over the rows of threads; a channel's first thread
// gets them. Each thread calls this.
template <int M>
inline void add_rows(
    thread float* v,
    int index,
    int row,
    int lanes,
    int rows,
    threadgroup float* shared) { // M * kGroupThreads
  int half_of = 1;
  while (2 * half_of < rows) {
    half_of *= 2;
  }
  for (int m = 0; m < M; ++m) {
    shared[m * kGroupThreads + index] = v[m];
  }
  for (; half_of > 0; half_of /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (row < half_of && row + half_of < rows) {
      for (int m = 0; m < M; ++m) {
        v[m] += shared[m * kGroupThreads + index + half_of * lanes];
        shared[m * kGroupThreads + index] = v[m];
      }
    }
  }
}
