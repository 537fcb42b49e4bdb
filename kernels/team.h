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

// The sum over the lanes; with `lanes` fewer than all, a power of two, of values
// that repeat after so many.
inline float simd_total(float v, int lanes = kSimdSize) {
#ifdef __CUDACC__
  return simd_sum(v, lanes); // fewer steps; kernels/to_cuda/prelude.h
#else
  return simd_sum(v);
#endif
}

inline float2 simd_total(float2 v, int lanes = kSimdSize) {
  return float2(simd_total(v.x, lanes), simd_total(v.y, lanes));
}

inline float3 simd_total(float3 v, int lanes = kSimdSize) {
  return float3(
      simd_total(v.x, lanes), simd_total(v.y, lanes), simd_total(v.z, lanes));
}

inline float4 simd_total(float4 v, int lanes = kSimdSize) {
  return float4(
      simd_total(v.x, lanes),
      simd_total(v.y, lanes),
      simd_total(v.z, lanes),
      simd_total(v.w, lanes));
}

// How many lanes add up one value of each SIMD-group of a team.
inline int lanes_for_simds() {
#ifdef __CUDACC__
  int lanes = 1;
  for (int i = 0; i < 5; ++i) {
    lanes = lanes < simds_per_row ? 2 * lanes : lanes;
  }
  return lanes;
#else
  return kSimdSize;
#endif
}

struct Team {
  int simd; // in the team
  int lane;
  int turn;                    // which half of `partial` the next sum takes
  threadgroup float4* partial; // 2 * kMaxSimds

  int thread_index() const {
    return simd * kSimdSize + lane;
  }

  // The sum over the team's threads, in each of them. Two sums in a row use
  // different halves, so one barrier a sum is enough.
  template <typename T> // float or a vector of them
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
    int i = lane % lanes_for_simds();
    return simd_total(
        i < simds_per_row ? of_simds[i] : T(0.0f), lanes_for_simds());
  }
};

// Which teams of a threadgroup there are: one of all its SIMD-groups, or one
// of each.
inline Team make_team(int simd, int lane, threadgroup float4* partial) {
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
