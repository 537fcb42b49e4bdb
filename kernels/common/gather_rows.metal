// Copyright (c) 2026 mlx_norms contributors
//
// Copies rows to a dense array, for arrays with more row axes than a layout
// holds.

#include "kernels/common/rows.h"

enum Gather {
  kGathered = 8 // elements of a thread, which finds its row once for them
};

template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void gather_rows(
    device const T* from [[buffer]],
    device T* to [[buffer]],
    constant const int* layout [[buffer]],
    constant const int& length [[buffer]],
    uint2 group [[threadgroup_position_in_grid]],
    uint2 at [[thread_position_in_threadgroup]],
    uint2 threads [[threads_per_threadgroup]]) {
  uint row = group.x;
  device const T* in = from + row_begin(layout, row);
  device T* out = to + long(row) * length;
  uint first = group.y * uint(kGathered) * threads.y + at.y;
  // All are read before one is written: a compiler does not know that none of
  // them is read there.
  T held[kGathered];
  for (int k = 0; k < kGathered; ++k) {
    uint i = first + uint(k) * threads.y;
    held[k] = i < uint(length) ? in[long(i) * layout[kStep]] : T(0);
  }
  for (int k = 0; k < kGathered; ++k) {
    uint i = first + uint(k) * threads.y;
    if (i < uint(length)) {
      out[i] = held[k];
    }
  }
}

#define INSTANTIATE_GATHER_ROWS(size, T)                  \
  template [[host_name("gather_rows_" #size)]] [[kernel]] \
  decltype(gather_rows<T>) gather_rows<T>;

INSTANTIATE_GATHER_ROWS(2, ushort)
INSTANTIATE_GATHER_ROWS(4, uint)
