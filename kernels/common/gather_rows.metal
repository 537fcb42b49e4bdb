// Copyright (c) 2026 mlx_norms contributors
//
// Copies rows to a dense array, for arrays with more row axes than a layout
// holds.

#include "kernels/common/rows.h"

template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] void gather_rows(
    device const T* from [[buffer(0)]],
    device T* to [[buffer(1)]],
    constant const int* layout [[buffer(2)]],
    constant const int& length [[buffer(3)]],
    uint2 at [[thread_position_in_grid]]) {
  uint row = at.x;
  if (at.y < uint(length)) {
    long source = row_begin(layout, row) + long(at.y) * layout[kStep];
    to[long(row) * length + at.y] = from[source];
  }
}

#define INSTANTIATE_GATHER_ROWS(size, T)                  \
  template [[host_name("gather_rows_" #size)]] [[kernel]] \
  decltype(gather_rows<T>) gather_rows<T>;

INSTANTIATE_GATHER_ROWS(2, ushort)
INSTANTIATE_GATHER_ROWS(4, uint)
