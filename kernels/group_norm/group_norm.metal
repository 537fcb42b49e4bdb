// Copyright (c) 2026 mlx_norms contributors
//
// Group norm in three launches: means and sums of squared deviations of each
// channel and chunk, the statistics of each group, and the normalized values.

#include "kernels/common/compensated_sum.h"
#include "kernels/common/simds_sum.h"
#include "kernels/group_norm/channel_threads.h"

constant constexpr int kMaxAcross = 8; // of 4 bytes: what memory reads by

// Merges one more position into a thread's sums, by Welford's recurrence.
template <int N>
inline void merge_position(
    thread const float* v,
    thread float& count,
    thread float* mean,
    thread float* square) {
  count += 1.0f;
  float share = 1.0f / count;
  for (int j = 0; j < N; ++j) {
    float before = v[j] - mean[j];
    mean[j] = fma(before, share, mean[j]);
    square[j] = fma(before, v[j] - mean[j], square[j]);
  }
}

// Merges kAtOnce positions, with one division.
template <int N>
inline void merge_positions(
    thread const float* v,
    thread float& count,
    thread float* mean,
    thread float* square) {
  static_assert(kAtOnce == 4, "four values are added here");
  float share = float(kAtOnce) / (count + float(kAtOnce));
  float weight = count * share;
  for (int j = 0; j < N; ++j) {
    float of_these = ((v[j] + v[N + j]) + (v[2 * N + j] + v[3 * N + j])) *
        (1.0f / float(kAtOnce));
    float apart = of_these - mean[j];
    float sum = fma(apart * weight, apart, square[j]);
    for (int k = 0; k < kAtOnce; ++k) {
      float off = v[k * N + j] - of_these;
      sum = fma(off, off, sum);
    }
    square[j] = sum;
    mean[j] = fma(apart, share, mean[j]);
  }
  count += float(kAtOnce);
}

// Deviations are from a thread's own first value, so that a large mean costs no
// precision, and an outlier only that of the few beside it. A mean is high +
// low.
template <int N>
[[kernel, max_total_threads_per_threadgroup(256)]] void group_partials(
    device const uchar* x [[buffer]],
    device float* highs [[buffer]],
    device float* lows [[buffer]],
    device float* squares [[buffer]],
    constant const int* layouts [[buffer]],
    constant const int* spread [[buffer]],
    constant const int& positions [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 at [[thread_position_in_threadgroup]]) {
  threadgroup float shared[(3 * N + 1) * kGroupThreads];
  ChannelThread t = make_channel_thread<N>(group.x, at, spread);
  Positions<N> of = positions_of<N>(t, positions);
  float count = 0.0f;
  float high[N], low[N], square[N]; // square: of deviations
  clear<N>(high);
  clear<N>(low);
  clear<N>(square);
  if (t.there && of.has(0)) {
    float shift[N], mean[N]; // mean: of deviations
    read_positions<N, 1>(of, 0, x, group_x_flags, layouts, shift);
    clear<N>(mean);
    for (int step = 0; step < t.steps; step += kAtOnce) {
      float v[kAtOnce * N];
      read_positions<N, kAtOnce>(of, step, x, group_x_flags, layouts, v);
      for (int k = 0; k < kAtOnce * N; ++k) {
        v[k] -= shift[k % N];
      }
      if (of.has(step + kAtOnce - 1)) {
        merge_positions<N>(v, count, mean, square);
      } else {
        for (int k = 0; k < kAtOnce; ++k) {
          if (of.has(step + k)) {
            merge_position<N>(v + k * N, count, mean, square);
          }
        }
      }
    }
    for (int j = 0; j < N; ++j) {
      add_exactly(shift[j], mean[j], high[j], low[j]);
    }
  }

  shared[t.index] = count;
  for (int j = 0; j < N; ++j) {
    shared[(1 + j) * kGroupThreads + t.index] = high[j];
    shared[(1 + N + j) * kGroupThreads + t.index] = low[j];
    shared[(1 + 2 * N + j) * kGroupThreads + t.index] = square[j];
  }
  for (int half_of = half_of_rows(t.rows); half_of > 0; half_of /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t.row < half_of && t.row + half_of < t.rows) {
      threadgroup const float* other = shared + t.index + half_of * t.lanes;
      float more = other[0];
      if (more > 0.0f) {
        float share = more / (count + more);
        for (int j = 0; j < N; ++j) {
          float other_low = other[(1 + N + j) * kGroupThreads];
          float apart =
              (other[(1 + j) * kGroupThreads] - high[j]) + (other_low - low[j]);
          square[j] +=
              fma(apart * apart,
                  count * share,
                  other[(1 + 2 * N + j) * kGroupThreads]);
          float mean = high[j];
          add_exactly(mean, fma(apart, share, low[j]), high[j], low[j]);
          shared[(1 + j) * kGroupThreads + t.index] = high[j];
          shared[(1 + N + j) * kGroupThreads + t.index] = low[j];
          shared[(1 + 2 * N + j) * kGroupThreads + t.index] = square[j];
        }
        count += more;
        shared[t.index] = count;
      }
    }
  }
  if (t.there && t.row == 0) {
    long to = (long(t.sample) * t.chunks + t.chunk) * t.channels;
    for (int j = 0; j < N; ++j) {
      if (t.channel + j < t.channels) {
        highs[to + t.channel + j] = high[j];
        lows[to + t.channel + j] = low[j];
        squares[to + t.channel + j] = square[j];
      }
    }
  }
}

// The sum over the threads whose lanes are equal modulo `across`, a power of
// two, in one order.
template <int SIMDS>
inline float sum_of_lanes(
    float v,
    int simd,
    int lane,
    int across,
    threadgroup float* partial) {
  for (int step = kSimdSize / 2; step >= across; step /= 2) {
    v += simd_shuffle_xor(v, step);
  }
  if (SIMDS == 1) {
    return v;
  }
  if (lane < across) {
    partial[simd * across + lane] = v;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  v = partial[lane % across];
  for (int i = 1; i < SIMDS; ++i) {
    v += partial[i * across + lane % across];
  }
  return v;
}

// A threadgroup merges all chunks and channels of `across` groups of a sample,
// of which each lane takes one: groups whose channels adjoin are read together.
template <int SIMDS>
[[kernel, max_total_threads_per_threadgroup(32 * SIMDS)]] void group_statistics(
    device const float* highs [[buffer]],
    device const float* lows [[buffer]],
    device const float* squares [[buffer]],
    device float* mean [[buffer]],
    device float* rest [[buffer]],
    device float* variance [[buffer]],
    constant const int& channels [[buffer]],
    constant const int& positions [[buffer]],
    constant const int& groups [[buffer]],
    constant const int& chunk_size [[buffer]],
    constant const int& across [[buffer]],
    constant const int& blocks [[buffer]],
    uint index [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float partial[2 * kMaxAcross * SIMDS];
  uint sample = quotient(index, uint(blocks));
  int block = int(index - sample * uint(blocks));
  int wanted = block * across + int(lane) % across;
  int group = min(wanted, groups - 1);
  int chunks = rounded_up_quotient(positions, chunk_size);
  int of_group = int(quotient(uint(channels), uint(groups)));
  long first =
      long(sample) * chunks * channels + first_channel(group, channels, groups);
  int apart = group_strided ? groups : 1;
  float total = float(positions) * float(of_group);
  int begin = (int(simd) * kSimdSize + int(lane)) / across;
  int step = kSimdSize * SIMDS / across;

  // Adds the means' exact differences from the first one.
  float shift = chunks > 0 ? highs[first] : 0.0f;
  float sum = 0.0f, error = 0.0f;
  for (int i = begin; i < chunks * of_group; i += step) {
    int chunk = int(quotient(uint(i), uint(of_group)));
    long at = first + long(chunk) * channels + (i - chunk * of_group) * apart;
    float count = float(min(chunk_size, positions - chunk * chunk_size));
    float off, low;
    add_exactly(highs[at], -shift, off, low);
    add_compensated(sum, error, count * off);
    add_compensated(sum, error, count * (low + lows[at]));
  }
  float shifted =
      sum_of_lanes<SIMDS>(sum, int(simd), int(lane), across, partial) / total;
  float high, low;
  add_exactly(shift, shifted, high, low);

  sum = error = 0.0f;
  for (int i = begin; i < chunks * of_group; i += step) {
    int chunk = int(quotient(uint(i), uint(of_group)));
    long at = first + long(chunk) * channels + (i - chunk * of_group) * apart;
    float count = float(min(chunk_size, positions - chunk * chunk_size));
    float off = (highs[at] - high) + (lows[at] - low);
    add_compensated(sum, error, fma(count * off, off, squares[at]));
  }
  float square = sum_of_lanes<SIMDS>(
      sum, int(simd), int(lane), across, partial + kMaxAcross * SIMDS);
  if (simd == 0 && int(lane) < across && wanted < groups) {
    uint to = sample * uint(groups) + uint(group);
    mean[to] = high;
    rest[to] = low;
    variance[to] = square / total;
  }
}

template <int N>
[[kernel, max_total_threads_per_threadgroup(256)]] void group_normalize(
    device const uchar* x [[buffer]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* bias [[buffer, function_constant(has_bias)]],
    device const uchar* mean [[buffer]],
    device const uchar* rest [[buffer, function_constant(group_has_rest)]],
    device const uchar* variance [[buffer]],
    device uchar* y [[buffer]],
    constant const int* layouts [[buffer]],
    constant const int* spread [[buffer]],
    constant const int& positions [[buffer]],
    constant const int& groups [[buffer]],
    constant const float& eps [[buffer]],
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
  Positions<N> of = positions_of<N>(t, positions);
  float means[N], scale[N], offset[N];
  load_statistics<N>(
      t, mean, rests, variance, layouts, groups, eps, means, scale, offset);
  float power = 1.0f;
  if (has_weight) {
    power = take_power<N>(scale);
    multiply_by<N>(
        row_in(weight, weight_flags, layouts, 0, t.channels),
        of.span,
        scale,
        offset);
  }
  if (has_bias) {
    add_bias<N>(
        row_in(bias, bias_flags, layouts, 0, t.channels), of.span, offset);
  }
  for (int step = 0; step < t.steps; step += kAtOnce) {
    float v[kAtOnce * N];
    read_positions<N, kAtOnce>(of, step, x, group_x_flags, layouts, v);
    for (int k = 0; k < kAtOnce; ++k) {
      if (of.has(step + k)) {
        for (int j = 0; j < N; ++j) {
          float d = (v[k * N + j] - means[j]) * power;
          v[k * N + j] = fma(d, scale[j], offset[j]);
        }
        activate_result<N>(float_type(group_y_flags), v + k * N);
        uint row = of.row_at(step + k);
        write<N>(
            row_out(y, group_y_flags, row, t.channels), of.span, v + k * N);
      }
    }
  }
}

#define INSTANTIATE_GROUP_PARTIALS(N)                     \
  template [[host_name("group_partials_" #N)]] [[kernel]] \
  decltype(group_partials<N>) group_partials<N>;

INSTANTIATE_GROUP_PARTIALS(4)
INSTANTIATE_GROUP_PARTIALS(8)

#define INSTANTIATE_GROUP_NORMALIZE(N)                     \
  template [[host_name("group_normalize_" #N)]] [[kernel]] \
  decltype(group_normalize<N>) group_normalize<N>;

INSTANTIATE_GROUP_NORMALIZE(4)
INSTANTIATE_GROUP_NORMALIZE(8)

#define INSTANTIATE_GROUP_STATISTICS(SIMDS)                     \
  template [[host_name("group_statistics_" #SIMDS)]] [[kernel]] \
  decltype(group_statistics<SIMDS>) group_statistics<SIMDS>;

INSTANTIATE_GROUP_STATISTICS(1)
INSTANTIATE_GROUP_STATISTICS(4)
INSTANTIATE_GROUP_STATISTICS(8)
INSTANTIATE_GROUP_STATISTICS(16)
