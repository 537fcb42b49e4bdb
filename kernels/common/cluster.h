// Copyright (c) 2026 mlx_norms contributors
//
// Cluster reduce: the threadgroups of a CUDA cluster read each other's
// threadgroup memory and add up their sums, so that less goes through device
// memory. On Metal every threadgroup is alone.

#pragma once

#include "kernels/common/rows.h"

constant int cluster [[function_constant]]; // threadgroups per cluster

// Whether this threadgroup adds up the cluster's vectors i.
inline bool has_sum(int i) {
#ifdef __CUDACC__
  if (cluster > 1) {
    return uint(i) % uint(cluster) == cluster_rank();
  }
#endif
  return true;
}

#ifdef __CUDACC__
// Stores this thread's vector i where the other threadgroups can read it.
template <int N>
inline void cluster_store(int i, thread const float* v) {
  for (int j = 0; j < N / 4; ++j) {
    thread const float* of = v + 4 * j;
    uint4 bits = uint4(
        as_type<uint>(of[0]),
        as_type<uint>(of[1]),
        as_type<uint>(of[2]),
        as_type<uint>(of[3]));
    *staged_vector(i * (N / 4) + j) = bits;
  }
}

// The sum over the cluster's threadgroups of their vectors i, in order of rank.
template <int N>
inline void cluster_reduce(int i, thread float* v) {
  for (int j = 0; j < N / 4; ++j) {
    thread float* sum = v + 4 * j;
    for (uint rank = 0; rank < uint(cluster); ++rank) {
      uint4 bits = staged_vector_of(i * (N / 4) + j, rank);
      float of[4] = {
          as_type<float>(bits.x),
          as_type<float>(bits.y),
          as_type<float>(bits.z),
          as_type<float>(bits.w)};
      for (int e = 0; e < 4; ++e) {
        sum[e] = rank == 0 ? of[e] : sum[e] + of[e];
      }
    }
  }
}
#endif
