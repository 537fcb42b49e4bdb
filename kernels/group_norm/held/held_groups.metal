// Copyright (c) 2026 mlx_norms contributors
//
// Group norm in one launch, of groups that a threadgroup holds in registers: x
// is read once.

#include "kernels/common/simds_sum.h"
#include "kernels/group_norm/channel_threads.h"

// A thread's channels are not all of one group.
constant bool groups_differ [[function_constant]];

constant constexpr int kHeldThreads = 640; // of a threadgroup, at most
constant constexpr int kHeldGroups = 64;   // of groups, at most

// V vectors of N channels, each of one position.
template <int N, int V>
struct HeldVectors {
  uint4 bits[V]; // twice the same if they are half as large

  void read_vector(RowIn row, int k, Span<N> span) thread {
    if (can_fetch<N>(row)) {
      bits[k] = fetch<N>(row, span);
      return;
    }
    if (N == 4 && row.vectors) {
      uint2 two = *(device const uint2*)(row.data + long(span.begin) * 2);
      bits[k] = uint4(two, two);
      return;
    }
    float v[N];
    read<N>(row, span, v);
    if (N == 8) {
      bits[k] = pack(v, row.type);
    } else if (row.type == kFloat32) {
      bits[k] = as_type<uint4>(take(v));
    } else {
      uint2 two = narrow(take(v), row.type);
      bits[k] = uint4(two, two);
    }
  }

  void get_vector(int type, int k, thread float* v) thread {
#ifdef __CUDACC__
    if (N == 8) {
      keep_packed(bits[k]);
    }
#endif
    if (N == 8 || type == kFloat32) {
      unpack<N>(bits[k], type, v);
    } else {
      put(v, widen(bits[k].xy, type));
    }
  }
};

// Where a thread's channels have their sums.
template <int N>
struct HeldSums {
  threadgroup float* sums;   // N * kHeldThreads: those of a group adjoin
  threadgroup float* totals; // kHeldGroups
  int parts;                 // sums that are added up to a group's
  int groups;
  int simd;
  int simds;
  int lane;
  bool there;
  int group[N]; // of each channel: of the threadgroup's
  int place[N]; // among the group's parts

  // The sums over each group, which every channel of it gets. A thread's are
  // one of each channel or, if they are of one group, two.
  void add_up(thread float* v) const thread {
    if (there) {
      if (groups_differ) {
        for (int j = 0; j < N; ++j) {
          sums[group[j] * parts + place[j]] = v[j];
        }
      } else {
        sums[group[0] * parts + place[0]] = v[0] + v[1];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int lanes = 1; // of a group: a power of two
    while (lanes < parts && lanes < kSimdSize) {
      lanes *= 2;
    }
    int at_once = kSimdSize / lanes;
    for (int first = simd * at_once; first < groups; first += simds * at_once) {
      int i = first + lane / lanes;
      float sum = 0.0f;
      for (int k = lane % lanes; i < groups && k < parts; k += lanes) {
        sum += sums[i * parts + k];
      }
      sum = lanes_sum(sum, lanes);
      if (i < groups && lane % lanes == 0) {
        totals[i] = sum;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int j = 0; j < N; ++j) {
      v[j] = totals[group[j]];
    }
  }
};

// Adds up a thread's deviations and their squares: in a sum for each channel,
// or in two.
template <int N, int V, int SUMS>
inline void add_deviations(
    thread HeldVectors<N, V>& held,
    int type,
    int vectors,
    thread const float* shift,
    thread float* sums,
    thread float* squares) {
  for (int k = 0; k < V; ++k) {
    if (k < vectors) {
      float v[N];
      held.get_vector(type, k, v);
      for (int j = 0; j < N; ++j) {
        float d = v[j] - shift[j];
        sums[j % SUMS] += d;
        squares[j % SUMS] = fma(d, d, squares[j % SUMS]);
      }
    }
  }
}

// A threadgroup has `lanes` vectors of a position's channels: `adjoining` ones,
// and `across` times such, as many channels apart as there are groups. It has
// `groups_held` groups of them, and `rows` positions at once.
template <int N, int V>
[[kernel, max_total_threads_per_threadgroup(640)]] void held_groups(
    device const uchar* x [[buffer]],
    device const uchar* weight [[buffer, function_constant(has_weight)]],
    device const uchar* bias [[buffer, function_constant(has_bias)]],
    device uchar* y [[buffer]],
    device float* mean [[buffer]],
    device float* rest [[buffer]],
    device float* variance [[buffer]],
    constant const int* layouts [[buffer]],
    constant const int& channels [[buffer]],
    constant const int& positions [[buffer]],
    constant const int& groups [[buffer]],
    constant const int& of_group [[buffer]],
    constant const int& adjoining [[buffer]],
    constant const int& across [[buffer]],
    constant const int& rows [[buffer]],
    constant const int& groups_held [[buffer]],
    constant const int& blocks [[buffer]],
    constant const float& eps [[buffer]],
    uint index [[threadgroup_position_in_grid]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]],
    uint lane_index [[thread_index_in_simdgroup]]) {
  threadgroup float sums[N * kHeldThreads];
  threadgroup float totals[kHeldGroups];
  int thread_index = int(simd * kSimdSize + lane_index);
  int lanes = adjoining * across;
  int row = thread_index / lanes;
  int lane = thread_index - row * lanes;
  int piece = lane / adjoining;
  int within = (lane - piece * adjoining) * N; // of the block's channels
  uint sample = index / uint(blocks);
  uint block = index - sample * uint(blocks);
  int channel = int(block) * adjoining * N + piece * groups + within;

  HeldSums<N> held_sums;
  held_sums.sums = sums;
  held_sums.totals = totals;
  held_sums.groups = groups_held;
  held_sums.simd = int(simd);
  held_sums.simds = int(simds);
  held_sums.lane = int(lane_index);
  held_sums.there = row < rows;
  int of_row = groups_differ ? of_group : of_group / N;
  held_sums.parts = rows * of_row;
  int begin_group = group_strided ? within : within / of_group;
  int begin_place = group_strided ? piece : within - begin_group * of_group;
  int group = begin_group, place = begin_place;
  for (int j = 0; j < N; ++j) {
    int of_one = groups_differ ? begin_place : begin_place / N;
    bool counted = groups_differ && !group_strided;
    held_sums.group[j] = group_strided ? begin_group + j
        : groups_differ                ? group
                                       : begin_group;
    held_sums.place[j] = row * of_row + (counted ? place : of_one);
    place += 1;
    bool next = place == of_group;
    group = next ? group + 1 : group;
    place = next ? 0 : place;
  }

  Span<N> span = span_at<N>(channel, channels);
  int type = float_type(group_x_flags);
  uint first_row = sample * uint(positions) + uint(row);
  int there = 0; // vectors
  HeldVectors<N, V> held;
  for (int k = 0; k < V; ++k) {
    held.bits[k] = uint4(0, 0, 0, 0);
    if (row < rows && row + k * rows < positions) {
      uint of_x = first_row + uint(k * rows);
      held.read_vector(
          row_in(x, group_x_flags, layouts, of_x, channels), k, span);
      there = k + 1;
    }
  }

  // Deviations are from the mean of each thread's first position: so a large
  // mean costs no precision. One in V values has it, so the square of the
  // others' mean deviation is at most V - 1 variances.
  float shift[N], v[N];
  held.get_vector(type, 0, v);
  clear<N>(shift);
  if (groups_differ) {
    for (int j = 0; j < N; ++j) {
      shift[j] += v[j];
    }
  } else {
    for (int j = 0; j < N; ++j) {
      shift[j % 2] += v[j];
    }
  }
  held_sums.add_up(shift);
  for (int j = 0; j < N; ++j) {
    shift[j] /= float(rows) * float(of_group);
  }
  float mean_of_d[N], square[N];
  clear<N>(mean_of_d);
  clear<N>(square);
  if (groups_differ) {
    add_deviations<N, V, N>(held, type, there, shift, mean_of_d, square);
  } else {
    add_deviations<N, V, 2>(held, type, there, shift, mean_of_d, square);
  }
  held_sums.add_up(mean_of_d);
  held_sums.add_up(square);
  float count = float(positions) * float(of_group);
  float high[N], low[N];
  for (int j = 0; j < N; ++j) {
    mean_of_d[j] /= count;
    square[j] = square[j] / count - mean_of_d[j] * mean_of_d[j];
    add_exactly(shift[j], mean_of_d[j], high[j], low[j]);
  }
  if (row >= rows) {
    return;
  }

  if (row == 0) {
    uint first_group = index * uint(groups_held);
    for (int j = 0; j < N; ++j) {
      if ((j == 0 || groups_differ) && held_sums.place[j] == 0) {
        uint to = first_group + uint(held_sums.group[j]);
        mean[to] = high[j];
        rest[to] = low[j];
        variance[to] = square[j];
      }
    }
  }
  float scale[N], offset[N];
  for (int j = 0; j < N; ++j) {
    scale[j] = precise::rsqrt(square[j] + eps);
    offset[j] = -low[j] * scale[j];
  }
  float power = 1.0f;
  if (has_weight) {
    power = take_power<N>(scale);
    multiply_by<N>(
        row_in(weight, weight_flags, layouts, 0, channels),
        span,
        scale,
        offset);
  }
  if (has_bias) {
    add_bias<N>(row_in(bias, bias_flags, layouts, 0, channels), span, offset);
  }
  for (int k = 0; k < V; ++k) {
    if (k < there) {
      held.get_vector(type, k, v);
      for (int j = 0; j < N; ++j) {
        v[j] = fma((v[j] - high[j]) * power, scale[j], offset[j]);
      }
      activate_result<N>(float_type(group_y_flags), v);
      uint of_y = first_row + uint(k * rows);
      write<N>(row_out(y, group_y_flags, of_y, channels), span, v);
    }
  }
}

#define INSTANTIATE_HELD_GROUPS(N, V)                         \
  template [[host_name("held_groups_" #N "_" #V)]] [[kernel]] \
  decltype(held_groups<N, V>) held_groups<N, V>;

// The combinations that csrc/norm/groups/geometry.cpp chooses.
INSTANTIATE_HELD_GROUPS(4, 1)
INSTANTIATE_HELD_GROUPS(4, 2)
INSTANTIATE_HELD_GROUPS(4, 4)
INSTANTIATE_HELD_GROUPS(4, 8)
INSTANTIATE_HELD_GROUPS(4, 10)
INSTANTIATE_HELD_GROUPS(4, 16)
INSTANTIATE_HELD_GROUPS(4, 20)
INSTANTIATE_HELD_GROUPS(4, 32)
INSTANTIATE_HELD_GROUPS(8, 1)
INSTANTIATE_HELD_GROUPS(8, 2)
INSTANTIATE_HELD_GROUPS(8, 4)
INSTANTIATE_HELD_GROUPS(8, 8)
INSTANTIATE_HELD_GROUPS(8, 10)
INSTANTIATE_HELD_GROUPS(8, 16)
INSTANTIATE_HELD_GROUPS(8, 20)
