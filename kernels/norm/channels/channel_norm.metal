// Copyright (c) 2026 mlx_norms contributors
//
// RMSNorm and LayerNorm over the channels of [outer, channels, inner]. Columns
// that fit in a threadgroup's registers are read once and stored once.

#include "kernels/common/parameters.h"
#include "kernels/norm/channels/column_statistics.h"
#include "kernels/norm/gate.h"

constant bool channels_round_early [[function_constant]];
constant int channels_x_flags [[function_constant]];
constant int channels_normalized_flags [[function_constant]];

template <int N, int V>
[[kernel, max_total_threads_per_threadgroup(512)]] void channel_norm(
    device const uchar* x [[buffer]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* bias [[buffer, function_constant(has_bias)]],
    device uchar* normalized [[buffer]],
    constant const int* layouts [[buffer]],
    constant const int& channels [[buffer]],
    constant const uint& inner [[buffer]],
    constant const uint& places [[buffer]],
    constant const int& weight_step [[buffer]],
    constant const int& bias_step [[buffer]],
    constant const float& eps [[buffer]],
    constant const float& weight_offset [[buffer]],
    uint group [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 partials[kMaxPartials / 4];
  threadgroup float4 totals[kMaxTotals / 4];
  uint place = group * column_lanes + lane % column_lanes;
  ColumnThread threads =
      make_column_thread<N>(place, places, inner, simd, lane, partials, totals);
  Columns<N, V> columns;
  columns.begin(x, channels_x_flags, layouts, threads);
  int type = float_type(channels_normalized_flags);
  bool rounded = columns.type != kFloat32 && type != kFloat32;
  ColumnStatistics<N> stats =
      column_statistics<N, V>(threads, columns, channels, rounded, eps);

  bool vectors = channels_normalized_flags & kVectors;
  // Where the thread's first channel is.
  int channel_lane = threads.channel_lane();
  long at = (long(threads.outer) * channels + channel_lane) * inner;
  device uchar* out = normalized + (at + threads.within) * size_of(type);
  long out_step = long(inner) * size_of(type);
  for (int chunk = 0; next_channels(chunk, channels);
       chunk += V * channel_lanes()) {
    for (int k = 0; k < V; ++k) {
      if (k >= column_count) {
        continue;
      }
      float v[N];
      columns.get_channel(threads, chunk, k, channels, v);
      if (!threads.has_channel(chunk, k, channels)) {
        continue;
      }
      int past = chunk + k * channel_lanes(); // the thread's first channel
      for (int j = 0; j < N; ++j) {
        v[j] = stats.normalized_value(j, v[j]);
      }
      if (channels_round_early) {
        round_vector<N>(type, v);
      }
      float w = 1.0f, b = 0.0f;
      if (has_weight) {
        w = load_parameter(
            weight, float_type(weight_flags), weight_step, past + channel_lane);
        w = has_weight_offset ? w + weight_offset : w;
      }
      if (has_bias) {
        b = load_parameter(
            bias, float_type(bias_flags), bias_step, past + channel_lane);
      }
      for (int j = 0; j < N; ++j) {
        v[j] = !has_bias ? (has_weight ? v[j] * w : v[j])
            : has_weight ? fma(v[j], w, b)
                         : v[j] + b;
      }
      if (activation != kNoActivation) {
        round_step<N>(channels_round_early, type, v);
        activate<N>(channels_round_early, type, v);
      }
      store_columns<N>(out + past * out_step, type, vectors, v);
    }
  }
}

#define INSTANTIATE_CHANNEL_NORM(N, V)                         \
  template [[host_name("channel_norm_" #N "_" #V)]] [[kernel]] \
  decltype(channel_norm<N, V>) channel_norm<N, V>;

// The combinations that csrc/norm/channels/geometry.cpp chooses.
INSTANTIATE_CHANNEL_NORM(1, 1)
INSTANTIATE_CHANNEL_NORM(1, 2)
INSTANTIATE_CHANNEL_NORM(1, 4)
INSTANTIATE_CHANNEL_NORM(1, 8)
INSTANTIATE_CHANNEL_NORM(4, 1)
INSTANTIATE_CHANNEL_NORM(4, 2)
INSTANTIATE_CHANNEL_NORM(4, 4)
INSTANTIATE_CHANNEL_NORM(4, 8)
INSTANTIATE_CHANNEL_NORM(8, 1)
INSTANTIATE_CHANNEL_NORM(8, 2)
INSTANTIATE_CHANNEL_NORM(8, 4)
INSTANTIATE_CHANNEL_NORM(8, 8)
