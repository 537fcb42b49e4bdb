// Copyright (c) 2026 mlx_norms contributors
//
// Makes rows dense, where an array has more axes of rows than a layout holds.

#include "kernels/rows.h"

template <typename T>
[[kernel]] void gather_rows(
    device const T* from [[buffer(0)]],
    device T* to [[buffer(1)]],
    constant const int* layout [[buffer(2)]],
    constant const int& length [[buffer(3)]],
    uint2 at [[thread_position_in_grid]]) {
  if (at.x < uint(length)) {
    long begin = row_begin(layout, at.y);
    to[long(at.y) * length + at.x] = from[begin + long(at.x) * layout[kStep]];
  }
}

#define INSTANTIATE_GATHER_ROWS(size, T)                  \
  template [[host_name("gather_rows_" #size)]] [[kernel]] \
  decltype(gather_rows<T>) gather_rows<T>;

INSTANTIATE_GATHER_ROWS(2, ushort)
INSTANTIATE_GATHER_ROWS(4, uint)
