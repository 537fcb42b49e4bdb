// Copyright (c) 2026 mlx_norms contributors
//
// Rows of arrays, read and written in vectors of N values. Row i of a dense
// array begins at element i * length; other layouts come as six integers.

#pragma once

#include "kernels/common/float_types.h"

// What a layout holds: the step between a row's elements, the sizes of the two
// innermost axes of rows, and the strides of the three innermost ones.
enum RowLayout {
  kStep = 0,
  kSize0 = 1,
  kSize1 = 2,
  kStride0 = 3,
  kStride1 = 4,
  kStride2 = 5
};

// How an array is laid out, a function constant: its FloatType and these.
enum RowFlags {
  kStrided = 4, // by its layout, else dense
  kVectors = 8, // whole vectors are aligned, and a row's elements adjoin
  kOneRow = 16  // it stands for all rows
};

constant bool whole [[function_constant(3)]]; // no vector passes the row's end

// Whether the n elements from i on are in the row.
inline bool in_row(int i, int n, int length) {
  return whole || i + n <= length;
}

struct RowIn {
  device const uchar* data;
  int type;
  bool vectors;
  int step;
};

struct RowOut {
  device uchar* data;
  int type;
  bool vectors;
};

inline int float_type(int flags) {
  return flags & 3;
}

// The element at which a row begins.
inline long row_begin(constant const int* layout, uint row) {
  uint outer = row / uint(layout[kSize0]);
  return long(row % uint(layout[kSize0])) * layout[kStride0] +
      long(outer % uint(layout[kSize1])) * layout[kStride1] +
      long(outer / uint(layout[kSize1])) * layout[kStride2];
}

inline RowIn row_in(
    device const uchar* data,
    int flags,
    constant const int* layout,
    uint row,
    int length) {
  bool strided = flags & kStrided;
  long at = strided     ? row_begin(layout, row)
      : flags & kOneRow ? 0
                        : long(row) * length;
  int step = strided ? layout[kStep] : 1;
  int type = float_type(flags);
  return RowIn{data + at * size_of(type), type, bool(flags & kVectors), step};
}

// Rows that are written are dense.
inline RowOut row_out(device uchar* data, int flags, uint row, int length) {
  int type = float_type(flags);
  return RowOut{
      data + long(row) * length * size_of(type), type, bool(flags & kVectors)};
}

// Field by field: a compiler that copies a row in words no longer sees that the
// rows it may be are of one type.
inline void assign(thread RowIn& to, RowIn row) {
  to.data = row.data;
  to.type = row.type;
  to.vectors = row.vectors;
  to.step = row.step;
}

inline void assign(thread RowOut& to, RowOut row) {
  to.data = row.data;
  to.type = row.type;
  to.vectors = row.vectors;
}

// The row again, to be read.
inline RowIn as_input(RowOut row) {
  return RowIn{row.data, row.type, row.vectors, 1};
}

// The values from element i on, zero past the row's end.
template <int N>
inline void read(RowIn row, int i, int length, thread float* v) {
  if (row.vectors && in_row(i, N, length)) {
    load_vector<N>(row.data + long(i) * size_of(row.type), row.type, v);
    return;
  }
  for (int j = 0; j < N; ++j) {
    long at = long(i + j) * row.step;
    v[j] = in_row(i + j, 1, length)
        ? load(row.data + at * size_of(row.type), row.type)
        : 0.0f;
  }
}

// Whether the row's vectors are of 16 bytes, which can be fetched before their
// values are needed.
template <int N>
inline bool can_fetch(RowIn row) {
  return row.vectors && N * size_of(row.type) == 16;
}

// The vector from element i on; zero past the row's end.
template <int N>
inline uint4 fetch(RowIn row, int i, int length) {
  if (in_row(i, N, length)) {
    return *(device const uint4*)(row.data + long(i) * size_of(row.type));
  }
  return uint4(0, 0, 0, 0);
}

// Whether that vector is what the row has from element i on. A last one that
// passes the row's end is not.
template <int N>
inline bool is_fetched(RowIn row, int i, int length) {
  return can_fetch<N>(row) && (in_row(i, N, length) || i >= length);
}

template <int N>
inline void write(RowOut row, int i, int length, thread const float* v) {
  if (row.vectors && in_row(i, N, length)) {
    store_vector<N>(row.data + long(i) * size_of(row.type), row.type, v);
    return;
  }
  for (int j = 0; j < N; ++j) {
    if (in_row(i + j, 1, length)) {
      store(row.data + long(i + j) * size_of(row.type), row.type, v[j]);
    }
  }
}
