// Copyright (c) 2026 mlx_norms contributors
//
// The threads that share a row: simds_per_row SIMD-groups or, for a short row,
// lanes_per_row lanes of one. Thread t of them reads vectors of N elements:
//
//   for each chunk, for k < V: element (k * threads + t) * N of the chunk
//
// or, if rows are scattered, N elements from k * threads * N + t on, each
// `threads` after the one before.
//
// A row of one chunk is read once. The order of each sum depends only on the
// row's length and dtype, so norms are batch-invariant.

#pragma once

#include "kernels/common/rows.h"
#include "kernels/common/simds_sum.h"

constant int simds_per_row [[function_constant]];
constant bool looped [[function_constant]]; // the row has several chunks
// All lanes or, if simds_per_row is 1, a smaller power of two.
constant int lanes_per_row [[function_constant]];
// The leading ones of each thread's vectors or, if they are scattered, elements
// that never pass the row's end. A scattered row of one chunk ends after those
// or in the next.
constant int full_count [[function_constant]];

constant constexpr int kMaxSimds = 32;

struct RowThreads {
  int simd;                    // index among the row's SIMD-groups
  int lane;                    // index among the row's lanes
  int parity;                  // which half of `partial` is next
  threadgroup float4* partial; // 2 * kMaxSimds
  // The constants, unless a launch has rows of several lengths.
  int simds;
  int lanes;
  int full_count;

  int thread_index() const thread {
    return simd * kSimdSize + lane;
  }

  // The sum over the row's threads, returned to each of them. Consecutive sums
  // use different halves of `partial`, so one barrier per sum is enough.
  template <typename T> // float or a vector of them
  T reduce(T v) thread {
    if (lanes < kSimdSize) {
      return lanes_sum(v, lanes);
    }
    threadgroup float4* half_of_it = partial + parity * kMaxSimds;
    parity = 1 - parity;
    return simds_sum(v, simd, lane, simds, half_of_it);
  }
};

// Each threadgroup works on one row at a time, or each of its SIMD-groups does.
inline RowThreads
make_row_threads(int simd, int lane, threadgroup float4* partial) {
  return RowThreads{
      simds_per_row == 1 ? 0 : simd,
      lane % lanes_per_row,
      0,
      partial,
      simds_per_row,
      lanes_per_row,
      full_count};
}

// The index among all SIMD-groups or, if several share a row, threadgroups.
inline uint row_threads_index(uint group, uint simds_per_group, uint simd) {
  return simds_per_row == 1 ? group * simds_per_group + simd : group;
}

inline int rows_per_simd() {
  return kSimdSize / lanes_per_row;
}

// The index of this lane's row among those of its SIMD-group.
inline uint row_in_simd(uint lane) {
  return lane / uint(lanes_per_row);
}

// Whether it holds for any row of the SIMD-group: all lanes must take part in
// a sum.
inline bool for_any_row(bool v) {
  return lanes_per_row < kSimdSize ? simd_any(v) : v;
}

// The sum over the rows of a SIMD-group of what their lanes with the same index
// have.
inline float rows_sum(float v) {
  for (int step = kSimdSize / 2; step > 0; step /= 2) {
    v = step >= lanes_per_row ? v + simd_shuffle_xor(v, step) : v;
  }
  return v;
}

template <int N, int V>
inline int chunk_length() {
  return simds_per_row * lanes_per_row * N * V;
}

// The element at which this thread's vector k begins.
template <int N>
inline int element(thread const RowThreads& threads, int chunk, int k) {
  int count = threads.simds * threads.lanes;
  return chunk + (k * count + threads.thread_index()) * N;
}

// This thread's vector k.
template <int N>
inline Span<N>
span_of(thread const RowThreads& threads, int chunk, int k, int length) {
  int begin = element<N>(threads, chunk, k);
  if (!scattered) {
    int count = k < threads.full_count ? N : span_at<N>(begin, length).count;
    return Span<N>{begin, count, 1};
  }
  int step = threads.simds * threads.lanes;
  begin = chunk + k * step * N + threads.thread_index();
  int full = threads.full_count - k * N;
  bool one_more = threads.full_count * step + threads.thread_index() < length;
  int count = full >= N ? N : full < 0 ? 0 : full + int(one_more);
  if (looped) {
    count = max(min((length - begin + step - 1) / step, N), 0);
  }
  return Span<N>{begin, count, step};
}

inline bool next_chunk(int chunk, int length) {
  return chunk == 0 || (looped && chunk < length);
}
