// Copyright (c) 2026 mlx_norms contributors
//
// The threads that share a row: simds_per_row SIMD-groups. Thread t of them
// reads vectors of N elements:
//
//   for each chunk, for k < V: element (k * threads + t) * N of the chunk
//
// A row of one chunk is read once. The order of each sum depends only on the
// row's length and dtype, so norms are batch-invariant.

#pragma once

#include "kernels/common/rows.h"
#include "kernels/common/simds_sum.h"

constant int simds_per_row [[function_constant(0)]];
constant bool looped [[function_constant(1)]]; // the row has several chunks

constant constexpr int kMaxSimds = 32;

struct RowThreads {
  int simd; // index among the row's SIMD-groups
  int lane;
  int parity;                  // which half of `partial` is next
  threadgroup float4* partial; // 2 * kMaxSimds

  int thread_index() const {
    return simd * kSimdSize + lane;
  }

  // The sum over the row's threads, returned to each of them. Consecutive sums
  // use different halves of `partial`, so one barrier per sum is enough.
  template <typename T> // float or a vector of them
  T reduce(T v) {
    threadgroup float4* half_of_it = partial + parity * kMaxSimds;
    parity = 1 - parity;
    return simds_sum(v, simd, lane, simds_per_row, half_of_it);
  }
};

// Each threadgroup works on one row at a time, or each of its SIMD-groups does.
inline RowThreads
make_row_threads(int simd, int lane, threadgroup float4* partial) {
  return RowThreads{simds_per_row == 1 ? 0 : simd, lane, 0, partial};
}

inline uint row_threads_index(uint group, uint simds_per_group, uint simd) {
  return simds_per_row == 1 ? group * simds_per_group + simd : group;
}

template <int N, int V>
inline int chunk_length() {
  return simds_per_row * kSimdSize * N * V;
}

// The element at which this thread's vector k begins.
template <int N>
inline int element(thread const RowThreads& threads, int chunk, int k) {
  int count = simds_per_row * kSimdSize;
  return chunk + (k * count + threads.thread_index()) * N;
}

inline bool next_chunk(int chunk, int length) {
  return chunk == 0 || (looped && chunk < length);
}
