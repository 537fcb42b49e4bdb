// Copyright (c) 2026 mlx_norms contributors
//
// The threads that share a row: simds_per_row SIMD-groups, which thread t of
// the team walks in vectors of N elements:
//
//   for each chunk, for k < V: element (k * threads + t) * N of the chunk
//
// A row of one chunk stays in registers. The order of every sum follows from
// the row's length and dtype alone, so a row has the same bits in any batch.

#pragma once

#include "kernels/rows.h"

constant int simds_per_row [[function_constant(0)]];
constant bool looped [[function_constant(1)]]; // the row takes several chunks

constant constexpr int kSimdSize = 32;
constant constexpr int kMaxSimds = 32;

inline float simd_total(float v) {
  return simd_sum(v);
}

inline float2 simd_total(float2 v) {
  return float2(simd_sum(v.x), simd_sum(v.y));
}

struct Team {
  int simd; // in the team
  int lane;
  int turn;                    // which half of `partial` the next sum takes
  threadgroup float2* partial; // 2 * kMaxSimds

  int thread_index() const {
    return simd * kSimdSize + lane;
  }

  // The sum over the team's threads, in each of them. Two sums in a row use
  // different halves, so one barrier a sum is enough.
  template <typename T> // float or float2
  T reduce(T v) {
    v = simd_total(v);
    if (simds_per_row == 1) {
      return v;
    }
    threadgroup T* of_simds = (threadgroup T*)(partial + turn * kMaxSimds);
    turn = 1 - turn;
    if (lane == 0) {
      of_simds[simd] = v;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return simd_total(lane < simds_per_row ? of_simds[lane] : T(0.0f));
  }
};

// Which teams of a threadgroup there are: one of all its SIMD-groups, or one
// of each.
inline Team make_team(int simd, int lane, threadgroup float2* partial) {
  return Team{simds_per_row == 1 ? 0 : simd, lane, 0, partial};
}

inline uint team_index(uint group, uint simds_per_group, uint simd) {
  return simds_per_row == 1 ? group * simds_per_group + simd : group;
}

template <int N, int V>
inline int chunk_length() {
  return simds_per_row * kSimdSize * N * V;
}

// Where vector k of the team's thread begins in the row.
template <int N>
inline int element(thread const Team& team, int chunk, int k) {
  int threads = simds_per_row * kSimdSize;
  return chunk + (k * threads + team.thread_index()) * N;
}

inline bool next_chunk(int chunk, int length) {
  return chunk == 0 || (looped && chunk < length);
}

template <int N, int V>
inline void read_chunk(
    RowIn row,
    thread const Team& team,
    int chunk,
    int length,
    thread float* v) {
  for (int k = 0; k < V; ++k) {
    read<N>(row, element<N>(team, chunk, k), length, v + k * N);
  }
}

// A row that is one chunk, fetched ahead.
template <int N, int V>
inline void
fetch_row(RowIn row, thread const Team& team, int length, thread uint4* bits) {
  for (int k = 0; k < V; ++k) {
    if (can_fetch<N>(row)) {
      bits[k] = fetch<N>(row, element<N>(team, 0, k), length);
    }
  }
}

// Its values; where vectors cannot be fetched they are read now, and so is a
// last one that passes the row's end.
template <int N, int V>
inline void read_fetched(
    RowIn row,
    thread const Team& team,
    int length,
    thread const uint4* bits,
    thread float* v) {
  for (int k = 0; k < V; ++k) {
    int i = element<N>(team, 0, k);
    if (can_fetch<N>(row) && (in_row(i, N, length) || i >= length)) {
      unpack<N>(bits[k], row.type, v + k * N);
    } else {
      read<N>(row, i, length, v + k * N);
    }
  }
}
