// Copyright (c) 2026 mlx_norms contributors
//
// Group norm in three launches: means and sums of squared deviations of each
// channel and chunk, the statistics of each group, and the normalized values.

#include "kernels/common/compensated_sum.h"
#include "kernels/common/simds_sum.h"
#include "kernels/group_norm/channel_threads.h"

constant int group_y_flags [[function_constant(42)]];

// Deviations are from the first value of the channel's group in this sample,
// so that a large mean costs no precision, and those of a group are alike.
template <int N>
[[kernel, max_total_threads_per_threadgroup(256)]] void group_partials(
    device const uchar* x [[buffer(0)]],
    device float* means [[buffer(1)]],
    device float* squares [[buffer(2)]],
    constant const int* x_layout [[buffer(3)]],
    constant const int& channels [[buffer(4)]],
    constant const int& positions [[buffer(5)]],
    constant const int& groups [[buffer(6)]],
    constant const int& lanes [[buffer(7)]],
    constant const int& rows [[buffer(8)]],
    constant const int& steps [[buffer(9)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[(2 * N + 1) * kGroupThreads];
  int index = int(thread_index);
  ChannelThread t = make_channel_thread<N>(
      group, index, channels, positions, lanes, rows, steps);
  uint first_row = t.sample * uint(positions);
  float count = 0.0f;
  float mean[N], square[N]; // of deviations, by Welford's recurrence
  clear<N>(mean);
  clear<N>(square);
  if (t.there) {
    float shift[N];
    for (int j = 0; j < N; ++j) {
      int c = min(t.channel + j, channels - 1);
      int first =
          first_channel(group_of(c, channels, groups), channels, groups);
      shift[j] =
          load_channel(x, group_x_flags, x_layout, first_row, first, channels);
    }
    Span<N> span = span_at<N>(t.channel, channels);
    for (int step = 0; step < steps; step += kAtOnce) {
      float v[kAtOnce * N];
      for (int k = 0; k < kAtOnce; ++k) {
        int position = t.position + (step + k) * rows;
        clear<N>(v + k * N);
        if (position < positions && step + k < steps) {
          uint row = first_row + uint(position);
          read<N>(
              row_in(x, group_x_flags, x_layout, row, channels),
              span,
              v + k * N);
        }
      }
      for (int k = 0; k < kAtOnce; ++k) {
        if (t.position + (step + k) * rows < positions && step + k < steps) {
          count += 1.0f;
          float share = 1.0f / count;
          for (int j = 0; j < N; ++j) {
            float deviation = v[k * N + j] - shift[j];
            float before = deviation - mean[j];
            mean[j] = fma(before, share, mean[j]);
            square[j] = fma(before, deviation - mean[j], square[j]);
          }
        }
      }
    }
  }

  int half_of = 1;
  while (2 * half_of < rows) {
    half_of *= 2;
  }
  shared[index] = count;
  for (int j = 0; j < N; ++j) {
    shared[(1 + j) * kGroupThreads + index] = mean[j];
    shared[(1 + N + j) * kGroupThreads + index] = square[j];
  }
  for (; half_of > 0; half_of /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t.row < half_of && t.row + half_of < rows) {
      threadgroup const float* other = shared + index + half_of * lanes;
      float more = other[0];
      if (more > 0.0f) {
        float share = more / (count + more);
        for (int j = 0; j < N; ++j) {
          float apart = other[(1 + j) * kGroupThreads] - mean[j];
          mean[j] = fma(apart, share, mean[j]);
          square[j] += fma(
              apart * apart, count * share, other[(1 + N + j) * kGroupThreads]);
          shared[(1 + j) * kGroupThreads + index] = mean[j];
          shared[(1 + N + j) * kGroupThreads + index] = square[j];
        }
        count += more;
        shared[index] = count;
      }
    }
  }
  if (t.there && t.row == 0) {
    uint chunks = rounded_up_quotient(positions, rows * steps);
    long to = long(t.sample * chunks + t.chunk) * channels;
    for (int j = 0; j < N; ++j) {
      if (t.channel + j < channels) {
        means[to + t.channel + j] = mean[j];
        squares[to + t.channel + j] = square[j];
      }
    }
  }
}

// A threadgroup merges all chunks and channels of a group of a sample.
template <int SIMDS>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDS)]] void group_statistics(
    device const uchar* x [[buffer(0)]],
    device const float* means [[buffer(1)]],
    device const float* squares [[buffer(2)]],
    device float* mean [[buffer(3)]],
    device float* rest [[buffer(4)]],
    device float* variance [[buffer(5)]],
    constant const int* x_layout [[buffer(6)]],
    constant const int& channels [[buffer(7)]],
    constant const int& positions [[buffer(8)]],
    constant const int& groups [[buffer(9)]],
    constant const int& chunk_size [[buffer(10)]],
    uint index [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partial[2 * SIMDS];
  uint sample = index / uint(groups);
  int group = int(index % uint(groups));
  int chunks = rounded_up_quotient(positions, chunk_size);
  int of_group = channels / groups;
  int first = first_channel(group, channels, groups);
  int apart = group_strided ? groups : 1;
  float total = float(positions) * float(of_group);

  float sum = 0.0f, error = 0.0f;
  for (int i = int(simd * 32 + lane); i < chunks * of_group; i += 32 * SIMDS) {
    int chunk = i / of_group;
    long at = (long(sample) * chunks + chunk) * channels + first +
        (i - chunk * of_group) * apart;
    float count = float(min(chunk_size, positions - chunk * chunk_size));
    add_compensated(sum, error, count * means[at]);
  }
  float shifted = simds_sum(sum, int(simd), int(lane), SIMDS, partial) / total;

  sum = error = 0.0f;
  for (int i = int(simd * 32 + lane); i < chunks * of_group; i += 32 * SIMDS) {
    int chunk = i / of_group;
    long at = (long(sample) * chunks + chunk) * channels + first +
        (i - chunk * of_group) * apart;
    float count = float(min(chunk_size, positions - chunk * chunk_size));
    float off = means[at] - shifted;
    add_compensated(sum, error, fma(count * off, off, squares[at]));
  }
  float square = simds_sum(sum, int(simd), int(lane), SIMDS, partial + SIMDS);
  if (simd == 0 && lane == 0) {
    mean[index] = load_channel(
        x, group_x_flags, x_layout, sample * uint(positions), first, channels);
    rest[index] = shifted;
    variance[index] = square / total;
  }
}

template <int N>
[[kernel, max_total_threads_per_threadgroup(256)]] void group_normalize(
    device const uchar* x [[buffer(0)]],
    device const uchar* weight [[buffer(1), function_constant(has_weight)]],
    device const uchar* bias [[buffer(2), function_constant(has_bias)]],
    device const uchar* mean [[buffer(3)]],
    device const uchar* rest [[buffer(4), function_constant(group_has_rest)]],
    device const uchar* variance [[buffer(5)]],
    device uchar* y [[buffer(6)]],
    constant const int* x_layout [[buffer(7)]],
    constant const int& channels [[buffer(8)]],
    constant const int& positions [[buffer(9)]],
    constant const int& groups [[buffer(10)]],
    constant const int& lanes [[buffer(11)]],
    constant const int& rows [[buffer(12)]],
    constant const int& steps [[buffer(13)]],
    constant const int& weight_step [[buffer(14)]],
    constant const int& bias_step [[buffer(15)]],
    constant const int& mean_step [[buffer(16)]],
    constant const int& variance_step [[buffer(17)]],
    constant const float& eps [[buffer(18)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  ChannelThread t = make_channel_thread<N>(
      group, int(thread_index), channels, positions, lanes, rows, steps);
  if (!t.there) {
    return;
  }
  device const uchar* rests = mean; // not read
  if (group_has_rest) {
    rests = rest;
  }
  float means[N], lows[N], scale[N];
  load_statistics<N>(
      t,
      mean,
      rests,
      variance,
      mean_step,
      variance_step,
      channels,
      groups,
      eps,
      means,
      lows,
      scale);
  float w[N], b[N];
  if (has_weight) {
    load_parameter<N>(
        weight, weight_flags, weight_step, t.channel, channels, w);
    for (int j = 0; j < N; ++j) {
      scale[j] *= w[j];
    }
  }
  clear<N>(b);
  if (has_bias) {
    load_parameter<N>(bias, bias_flags, bias_step, t.channel, channels, b);
  }

  Span<N> span = span_at<N>(t.channel, channels);
  uint first_row = t.sample * uint(positions);
  for (int step = 0; step < steps; step += kAtOnce) {
    float v[kAtOnce * N];
    for (int k = 0; k < kAtOnce; ++k) {
      int position = t.position + (step + k) * rows;
      clear<N>(v + k * N);
      if (position < positions && step + k < steps) {
        uint row = first_row + uint(position);
        read<N>(
            row_in(x, group_x_flags, x_layout, row, channels), span, v + k * N);
      }
    }
    for (int k = 0; k < kAtOnce; ++k) {
      int position = t.position + (step + k) * rows;
      if (position < positions && step + k < steps) {
        for (int j = 0; j < N; ++j) {
          float n = ((v[k * N + j] - means[j]) - lows[j]) * scale[j];
          v[k * N + j] = has_bias ? n + b[j] : n;
        }
        activate<N>(false, kFloat32, v + k * N);
        uint row = first_row + uint(position);
        write<N>(row_out(y, group_y_flags, row, channels), span, v + k * N);
      }
    }
  }
}

#define INSTANTIATE_GROUP_NORM(N)                          \
  template [[host_name("group_partials_" #N)]] [[kernel]]  \
  decltype(group_partials<N>) group_partials<N>;           \
  template [[host_name("group_normalize_" #N)]] [[kernel]] \
  decltype(group_normalize<N>) group_normalize<N>;

INSTANTIATE_GROUP_NORM(4)
INSTANTIATE_GROUP_NORM(8)

#define INSTANTIATE_GROUP_STATISTICS(SIMDS)                     \
  template [[host_name("group_statistics_" #SIMDS)]] [[kernel]] \
  decltype(group_statistics<SIMDS>) group_statistics<SIMDS>;

INSTANTIATE_GROUP_STATISTICS(1)
INSTANTIATE_GROUP_STATISTICS(8)
