// Copyright (c) 2026 mlx_norms contributors
//
// The gradients of group norm in three launches: the sums over a chunk of each
// channel's cotangents, and of them times the normalized values; those over all
// chunks, and of a group's channels; and the gradient of x. Where statistics
// are given, that depends on no sum: the first launch writes it, too.

#include "kernels/group_norm/channel_threads.h"

constant int group_cotangent_flags [[function_constant]];
constant int group_gradient_flags [[function_constant]];
constant bool group_of_sums [[function_constant]]; // x's gradient
constant bool group_means_wanted [[function_constant]];
constant bool group_bias_read [[function_constant]];    // by an activation
constant bool group_writes_input [[function_constant]]; // of partials
constant int group_sums_type [[function_constant]];
// Groups are channels, of which a threadgroup takes `width`.
constant bool group_is_channel [[function_constant]];

inline void store_sum(device uchar* sums, long at, float v) {
  store(sums + at * size_of(group_sums_type), group_sums_type, v);
}

// What x's gradient takes of one of all samples' groups: the means over it of
// the weighted cotangents, and of them times the normalized values.
inline void store_means(
    device float* means,
    int samples,
    int groups,
    uint group,
    float of_bias,
    float of_weight) {
  means[group] = of_bias;
  means[uint(samples) * uint(groups) + group] = of_weight;
}

// The values of x and of the cotangent at two positions from `step` on, as by
// read_positions(), but with one branch, which leaves fewer registers in use.
template <int N>
inline void read_both(
    Positions<N> of,
    int step,
    device const uchar* x,
    device const uchar* cotangent,
    constant const int* layouts,
    thread float* v,
    thread float* g) {
  for (int k = 0; k < kAtOnce / 2; ++k) {
    clear<N>(v + k * N);
    clear<N>(g + k * N);
    if (of.has(step + k)) {
      uint row = of.row_at(step + k);
      read<N>(
          row_in(x, group_x_flags, layouts, row, of.channels),
          of.span,
          v + k * N);
      read<N>(
          row_in(cotangent, group_cotangent_flags, layouts, row, of.channels),
          of.span,
          g + k * N);
    }
  }
}

// Two channels' values: x becomes n, and g the cotangent of n w + b.
template <int N>
inline void differentiate(
    thread const float* mean,
    thread const float* rstd,
    thread const float* offset,
    thread const float* w,
    thread const float* b,
    thread float* x,
    thread float* g) {
  for (int j = 0; j < N; ++j) {
    x[j] = fma(x[j] - mean[j], rstd[j], offset[j]);
  }
  if (activation != kNoActivation) {
    float z[N], slope[N];
    for (int j = 0; j < N; ++j) {
      z[j] = x[j] * w[j] + b[j];
    }
    activation_slope<N>(z, slope);
    for (int j = 0; j < N; ++j) {
      g[j] *= slope[j];
    }
  }
}

template <int N>
[[kernel, max_total_threads_per_threadgroup(256)]] void group_gradient_partials(
    device const uchar* x [[buffer]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* bias [[buffer, function_constant(group_bias_read)]],
    device const uchar* mean [[buffer]],
    device const uchar* rest [[buffer, function_constant(group_has_rest)]],
    device const uchar* variance [[buffer]],
    device const uchar* cotangent [[buffer]],
    device uchar* bias_partials [[buffer]],
    device uchar* weight_partials [[buffer]],
    device uchar* gradient [[buffer, function_constant(group_writes_input)]],
    device float* group_means [[buffer, function_constant(group_means_wanted)]],
    constant const int* layouts [[buffer]],
    constant const int* spread [[buffer]],
    constant const int& positions [[buffer]],
    constant const int& groups [[buffer]],
    constant const float& eps [[buffer]],
    constant const int& samples [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 at [[thread_position_in_threadgroup]]) {
  threadgroup float shared[2 * N * kGroupThreads];
  ChannelThread t = make_channel_thread<N>(group.x, at, spread);
  float sums[2 * N], w[N];
  clear<2 * N>(sums);
  for (int j = 0; j < N; ++j) {
    w[j] = 1.0f;
  }
  if (t.there) {
    device const uchar* rests = mean; // not read
    if (group_has_rest) {
      rests = rest;
    }
    float means[N], rstd[N], offset[N], b[N];
    load_statistics<N>(
        t, mean, rests, variance, layouts, groups, eps, means, rstd, offset);
    clear<N>(b);
    Positions<N> of = positions_of<N>(t, positions);
    if (has_weight) {
      read<N>(row_in(weight, weight_flags, layouts, 0, t.channels), of.span, w);
    }
    if (group_bias_read) {
      read<N>(row_in(bias, bias_flags, layouts, 0, t.channels), of.span, b);
    }
    for (int step = 0; step < t.steps; step += kAtOnce / 2) {
      float v[kAtOnce / 2 * N], g[kAtOnce / 2 * N];
      read_both<N>(of, step, x, cotangent, layouts, v, g);
      for (int k = 0; k < kAtOnce / 2; ++k) {
        if (of.has(step + k)) {
          differentiate<N>(means, rstd, offset, w, b, v + k * N, g + k * N);
          for (int j = 0; j < N; ++j) {
            sums[j] += g[k * N + j];
            sums[N + j] = fma(g[k * N + j], v[k * N + j], sums[N + j]);
          }
          if (group_writes_input) {
            for (int j = 0; j < N; ++j) {
              v[k * N + j] = g[k * N + j] * w[j] * rstd[j];
            }
            uint row = of.row_at(step + k);
            write<N>(
                row_out(gradient, group_gradient_flags, row, t.channels),
                of.span,
                v + k * N);
          }
        }
      }
    }
  }
  add_rows<2 * N>(sums, t, shared);
  if (t.there && t.row == 0) {
    long to = (long(t.sample) * t.chunks + t.chunk) * t.channels;
    for (int j = 0; j < N; ++j) {
      if (t.channel + j < t.channels) {
        store_sum(bias_partials, to + t.channel + j, sums[j]);
        store_sum(weight_partials, to + t.channel + j, sums[N + j]);
      }
    }
    if (group_means_wanted) { // of groups of one channel, and one chunk
      for (int j = 0; j < N; ++j) {
        if (t.channel + j < t.channels) {
          float by = w[j] / float(positions);
          store_means(
              group_means,
              samples,
              groups,
              uint(to + t.channel + j),
              sums[j] * by,
              sums[N + j] * by);
        }
      }
    }
  }
}

// A threadgroup takes a group of a sample, `width` channels at once, a power of
// two, of which each has as many threads as there are left; or as many groups
// of one channel.
template <int THREADS>
[[kernel, max_total_threads_per_threadgroup(THREADS)]] void group_gradient_sums(
    device const float* bias_partials [[buffer]],
    device const float* weight_partials [[buffer]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device uchar* bias_sums [[buffer]],
    device uchar* weight_sums [[buffer]],
    device float* group_means [[buffer, function_constant(group_means_wanted)]],
    constant const int& channels [[buffer]],
    constant const int& positions [[buffer]],
    constant const int& groups [[buffer]],
    constant const int& chunks [[buffer]],
    constant const int& width [[buffer]],
    constant const int& samples [[buffer]],
    constant const int* layouts [[buffer]],
    constant const int& blocks [[buffer]],
    uint index [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[2 * THREADS];
  uint sample = quotient(index, uint(blocks));
  int block = int(index - sample * uint(blocks));
  int of_group = group_is_channel ? width : channels / groups;
  int first =
      group_is_channel ? block * width : first_channel(block, channels, groups);
  int step = group_strided && !group_is_channel ? groups : 1;
  int lane = int(thread_index) % width;
  int row = int(thread_index) / width;
  int rows = THREADS / width;
  float total[2] = {0.0f, 0.0f}; // of the group's channels, weighted
  for (int begin = 0; begin < of_group; begin += width) {
    int channel = first + (begin + lane) * step;
    bool there = begin + lane < of_group && channel < channels;
    float v[2] = {0.0f, 0.0f};
    if (there) {
      for (int chunk = row; chunk < chunks; chunk += rows) {
        long at = (long(sample) * chunks + chunk) * channels + channel;
        v[0] += bias_partials[at];
        v[1] += weight_partials[at];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // shared is written again
    shared[thread_index] = v[0];
    shared[THREADS + thread_index] = v[1];
    for (int half_of = rows / 2; half_of > 0; half_of /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (row < half_of) {
        uint other = thread_index + uint(half_of * width);
        v[0] += shared[other];
        v[1] += shared[THREADS + other];
        shared[thread_index] = v[0];
        shared[THREADS + thread_index] = v[1];
      }
    }
    if (there && row == 0) {
      long at = long(sample) * channels + channel;
      store_sum(bias_sums, at, v[0]);
      store_sum(weight_sums, at, v[1]);
      float w = 1.0f;
      if (has_weight) {
        RowIn in = row_in(weight, weight_flags, layouts, 0, channels);
        w = load(in.data + long(channel) * in.step * size_of(in.type), in.type);
      }
      total[0] = fma(w, v[0], total[0]);
      total[1] = fma(w, v[1], total[1]);
    }
  }
  if (group_means_wanted && group_is_channel) {
    uint channel = uint(first + lane);
    if (row == 0 && channel < uint(channels)) {
      float values = float(positions);
      uint to = sample * uint(groups) + channel;
      store_means(
          group_means,
          samples,
          groups,
          to,
          total[0] / values,
          total[1] / values);
    }
  } else if (group_means_wanted) {
    threadgroup_barrier(mem_flags::mem_threadgroup); // shared is written again
    shared[thread_index] = total[0];
    shared[THREADS + thread_index] = total[1];
    for (int half_of = width / 2; half_of > 0; half_of /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (int(thread_index) < half_of) {
        total[0] += shared[thread_index + uint(half_of)];
        total[1] += shared[THREADS + thread_index + uint(half_of)];
        shared[thread_index] = total[0];
        shared[THREADS + thread_index] = total[1];
      }
    }
    if (thread_index == 0) {
      float values = float(positions) * float(of_group);
      store_means(
          group_means,
          samples,
          groups,
          index,
          total[0] / values,
          total[1] / values);
    }
  }
}

template <int N>
[[kernel, max_total_threads_per_threadgroup(256)]] void group_input_gradient(
    device const uchar* x [[buffer]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* bias [[buffer, function_constant(group_bias_read)]],
    device const uchar* mean [[buffer]],
    device const uchar* rest [[buffer, function_constant(group_has_rest)]],
    device const uchar* variance [[buffer]],
    device const uchar* cotangent [[buffer]],
    device const float* group_means
    [[buffer, function_constant(group_of_sums)]],
    device uchar* gradient [[buffer]],
    constant const int* layouts [[buffer]],
    constant const int* spread [[buffer]],
    constant const int& positions [[buffer]],
    constant const int& groups [[buffer]],
    constant const float& eps [[buffer]],
    constant const int& samples [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 at [[thread_position_in_threadgroup]]) {
  ChannelThread t = make_channel_thread<N>(group.x, at, spread);
  if (!t.there) {
    return;
  }
  device const uchar* rests = mean; // not read
  if (group_has_rest) {
    rests = rest;
  }
  float means[N], rstd[N], offset[N], w[N], b[N], of_bias[N], of_weight[N];
  load_statistics<N>(
      t, mean, rests, variance, layouts, groups, eps, means, rstd, offset);
  for (int j = 0; j < N; ++j) {
    w[j] = 1.0f;
    b[j] = of_bias[j] = of_weight[j] = 0.0f;
  }
  Positions<N> of = positions_of<N>(t, positions);
  if (has_weight) {
    read<N>(row_in(weight, weight_flags, layouts, 0, t.channels), of.span, w);
  }
  if (group_bias_read) {
    read<N>(row_in(bias, bias_flags, layouts, 0, t.channels), of.span, b);
  }
  if (group_of_sums) {
    int of_channel[N];
    groups_of<N>(t.channel, t.channels, groups, of_channel);
    for (int j = 0; j < N; ++j) {
      long from = long(t.sample) * groups + of_channel[j];
      of_bias[j] = group_means[from];
      of_weight[j] = group_means[long(samples) * groups + from];
    }
  }
  for (int step = 0; step < t.steps; step += kAtOnce / 2) {
    float v[kAtOnce / 2 * N], g[kAtOnce / 2 * N];
    read_both<N>(of, step, x, cotangent, layouts, v, g);
    for (int k = 0; k < kAtOnce / 2; ++k) {
      if (of.has(step + k)) {
        differentiate<N>(means, rstd, offset, w, b, v + k * N, g + k * N);
        for (int j = 0; j < N; ++j) {
          float d = g[k * N + j] * w[j];
          if (group_of_sums) {
            d = (d - of_bias[j]) - v[k * N + j] * of_weight[j];
          }
          v[k * N + j] = d * rstd[j];
        }
        uint row = of.row_at(step + k);
        write<N>(
            row_out(gradient, group_gradient_flags, row, t.channels),
            of.span,
            v + k * N);
      }
    }
  }
}

#define INSTANTIATE_GROUP_GRADIENT_PARTIALS(N)                     \
  template [[host_name("group_gradient_partials_" #N)]] [[kernel]] \
  decltype(group_gradient_partials<N>) group_gradient_partials<N>;

INSTANTIATE_GROUP_GRADIENT_PARTIALS(4)
INSTANTIATE_GROUP_GRADIENT_PARTIALS(8)

#define INSTANTIATE_GROUP_INPUT_GRADIENT(N)                     \
  template [[host_name("group_input_gradient_" #N)]] [[kernel]] \
  decltype(group_input_gradient<N>) group_input_gradient<N>;

INSTANTIATE_GROUP_INPUT_GRADIENT(4)
INSTANTIATE_GROUP_INPUT_GRADIENT(8)

#define INSTANTIATE_GROUP_GRADIENT_SUMS(THREADS)                     \
  template [[host_name("group_gradient_sums_" #THREADS)]] [[kernel]] \
  decltype(group_gradient_sums<THREADS>) group_gradient_sums<THREADS>;

INSTANTIATE_GROUP_GRADIENT_SUMS(64)
INSTANTIATE_GROUP_GRADIENT_SUMS(256)
