// Copyright (c) 2026 mlx_norms contributors
//
// The gradients of channel_norm. A threadgroup takes `iterations` groups of
// columns after one another, and stores a row of partial sums of the weight's
// and the bias's gradients, which sum_partials adds up.

#include "kernels/common/parameters.h"
#include "kernels/norm/channels/column_statistics.h"

constant bool channels_want_input [[function_constant]];
constant bool channels_want_weight [[function_constant]];
constant bool channels_want_bias [[function_constant]];
constant int channels_s_flags [[function_constant]];
constant int channels_cotangent_flags [[function_constant]];
constant int channels_input_flags [[function_constant]];

// The sum over the lanes of a SIMD-group that have one channel.
inline float columns_sum(float v) {
  return lanes_sum(v, column_lanes);
}

inline float channel_weight(
    device const uchar* weight,
    int step,
    float offset,
    int channel) {
  float w = load_parameter(weight, float_type(weight_flags), step, channel);
  return has_weight_offset ? w + offset : w;
}

template <int N, int V>
[[kernel, max_total_threads_per_threadgroup(512)]] void channel_norm_vjp(
    device const uchar* s [[buffer]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* cotangent [[buffer]],
    device uchar* input_gradient
    [[buffer, function_constant(channels_want_input)]],
    device float* weight_partials
    [[buffer, function_constant(channels_want_weight)]],
    device float* bias_partials
    [[buffer, function_constant(channels_want_bias)]],
    constant const int* layouts [[buffer]],
    constant const int& channels [[buffer]],
    constant const uint& inner [[buffer]],
    constant const uint& places [[buffer]],
    constant const uint& iterations [[buffer]],
    constant const int& weight_step [[buffer]],
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partials[kMaxPartials / 4];
  threadgroup float4 totals[kMaxTotals / 4];
  const bool sums = channels_want_weight || channels_want_bias;
  int type = float_type(channels_input_flags);
  bool vectors = channels_input_flags & kVectors;
  int channel_lane = int(simd * kSimdSize + lane) / column_lanes;
  bool stores = int(lane) % column_lanes == 0; // a channel's sums
  float w[V], dw[V], db[V];
  for (int k = 0; k < V; ++k) {
    int channel = k * channel_lanes() + channel_lane;
    dw[k] = db[k] = 0.0f;
    w[k] = 1.0f;
    if (has_weight && !looped && channel < channels) {
      w[k] = channel_weight(weight, weight_step, weight_offset, channel);
    }
  }

  for (uint iteration = 0; iteration < iterations; ++iteration) {
    uint block = group * iterations + iteration;
    if (block * column_lanes >= places) {
      break; // all threads
    }
    ColumnThread threads = make_column_thread<N>(
        block * column_lanes + lane % column_lanes,
        places,
        inner,
        simd,
        lane,
        partials,
        totals);
    Columns<N, V> columns, gs;
    columns.begin(s, channels_s_flags, layouts, threads);
    gs.begin(cotangent, channels_cotangent_flags, layouts, threads);
    if (!looped) {
      gs.hold_all(threads, channels);
    }
    bool rounded = columns.type != kFloat32 && gs.type != kFloat32;
    ColumnStatistics<N> stats =
        column_statistics<N, V>(threads, columns, channels, rounded, eps);

    ChunkedSums<2 * N> chunked; // of wg * n, then of wg
    chunked.begin();
    for (int chunk = 0; next_channels(chunk, channels);
         chunk += V * channel_lanes()) {
      for (int k = 0; k < V; ++k) {
        if (k >= column_count) {
          continue;
        }
        int channel = chunk + k * channel_lanes() + channel_lane;
        float v[N], g[N];
        columns.get_channel(threads, chunk, k, channels, v);
        gs.get_channel(threads, chunk, k, channels, g);
        if (has_weight && looped && channel < channels) {
          w[k] = channel_weight(weight, weight_step, weight_offset, channel);
        }
        // What is not there can be infinite, of which 0 times is NaN.
        bool within = threads.has_channel(chunk, k, channels);
        float of_weight = 0.0f, of_bias = 0.0f;
        for (int j = 0; j < N; ++j) {
          float n = within ? stats.normalized_value(j, v[j]) : 0.0f;
          float wg = has_weight ? g[j] * w[k] : g[j];
          chunked.chunk[j] = fma(wg, n, chunked.chunk[j]);
          chunked.chunk[N + j] += wg;
          of_weight = fma(g[j], n, of_weight);
          of_bias += g[j];
        }
        if (!looped) {
          dw[k] += of_weight;
          db[k] += of_bias;
        } else if (sums) {
          // The same thread adds to the same sum each time.
          of_weight = columns_sum(of_weight);
          of_bias = columns_sum(of_bias);
          if (stores && channel < channels) {
            long to = long(group) * channels + channel;
            bool first = iteration == 0;
            if (channels_want_weight) {
              weight_partials[to] =
                  first ? of_weight : weight_partials[to] + of_weight;
            }
            if (channels_want_bias) {
              bias_partials[to] = first ? of_bias : bias_partials[to] + of_bias;
            }
          }
        }
      }
      chunked.end_chunk();
    }
    if (!channels_want_input) {
      continue;
    }
    thread float* means = chunked.end();
    if (center) {
      threads.average<2 * N>(channels, means);
    } else {
      threads.average<N>(channels, means);
      for (int j = 0; j < N; ++j) {
        means[j] = is_constant(stats.rstd[j], eps) ? 0.0f : means[j];
      }
    }
    // Where the thread's first channel is.
    long at = (long(threads.outer) * channels + channel_lane) * inner;
    device uchar* out = input_gradient + (at + threads.within) * size_of(type);
    long out_step = long(inner) * size_of(type);
    for (int chunk = 0; next_channels(chunk, channels);
         chunk += V * channel_lanes()) {
      for (int k = 0; k < V; ++k) {
        if (k >= column_count) {
          continue;
        }
        int past = chunk + k * channel_lanes(); // the thread's first channel
        float v[N], g[N];
        columns.get_channel(threads, chunk, k, channels, v);
        gs.get_channel(threads, chunk, k, channels, g);
        if (!threads.has_channel(chunk, k, channels)) {
          continue;
        }
        if (has_weight && looped) {
          w[k] = channel_weight(
              weight, weight_step, weight_offset, past + channel_lane);
        }
        for (int j = 0; j < N; ++j) {
          float n = stats.normalized_value(j, v[j]);
          float d = !has_weight ? (center ? g[j] - means[N + j] : g[j])
              : center          ? fma(g[j], w[k], -means[N + j])
                                : g[j] * w[k];
          v[j] = fma(-n, means[j], d) * stats.rstd[j];
        }
        store_columns<N>(out + past * out_step, type, vectors, v);
      }
    }
  }

  if (sums && !looped) {
    for (int k = 0; k < V; ++k) {
      int channel = k * channel_lanes() + channel_lane;
      float of_weight = columns_sum(dw[k]);
      float of_bias = columns_sum(db[k]);
      if (stores && channel < channels) {
        long to = long(group) * channels + channel;
        if (channels_want_weight) {
          weight_partials[to] = of_weight;
        }
        if (channels_want_bias) {
          bias_partials[to] = of_bias;
        }
      }
    }
  }
}

#define INSTANTIATE_CHANNEL_NORM_VJP(N, V)                         \
  template [[host_name("channel_norm_vjp_" #N "_" #V)]] [[kernel]] \
  decltype(channel_norm_vjp<N, V>) channel_norm_vjp<N, V>;

INSTANTIATE_CHANNEL_NORM_VJP(1, 1)
INSTANTIATE_CHANNEL_NORM_VJP(1, 2)
INSTANTIATE_CHANNEL_NORM_VJP(1, 4)
INSTANTIATE_CHANNEL_NORM_VJP(1, 8)
INSTANTIATE_CHANNEL_NORM_VJP(4, 1)
INSTANTIATE_CHANNEL_NORM_VJP(4, 2)
INSTANTIATE_CHANNEL_NORM_VJP(4, 4)
INSTANTIATE_CHANNEL_NORM_VJP(4, 8)
INSTANTIATE_CHANNEL_NORM_VJP(8, 1)
INSTANTIATE_CHANNEL_NORM_VJP(8, 2)
INSTANTIATE_CHANNEL_NORM_VJP(8, 4)
INSTANTIATE_CHANNEL_NORM_VJP(8, 8)
