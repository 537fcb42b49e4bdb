// Copyright (c) 2026 mlx_norms contributors
//
// Loads and stores rows in vectors of N values. Row i of a dense array begins
// at element i * length; six integers describe any other layout.

#pragma once

#include "kernels/common/float_types.h"

// A layout: the step between a row's elements, the sizes of the two innermost
// row axes, and the strides of the three innermost row axes.
enum RowLayout {
  kStep = 0,
  kSize0 = 1,
  kSize1 = 2,
  kStride0 = 3,
  kStride1 = 4,
  kStride2 = 5
};

// An array's flags, a function constant: its FloatType plus these.
enum RowFlags {
  kStrided = 4, // rows are found by a layout, else dense
  kVectors = 8, // elements are contiguous and whole vectors aligned
  kOneRow = 16  // one row stands for all
};

constant bool whole [[function_constant(3)]]; // no vector passes the row's end

// Whether the n elements starting at i are in the row.
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

// Output rows are dense.
inline RowOut row_out(device uchar* data, int flags, uint row, int length) {
  int type = float_type(flags);
  return RowOut{
      data + long(row) * length * size_of(type), type, bool(flags & kVectors)};
}

// Copies field by field: after a copy of the whole struct the compiler no
// longer sees that a row's type is the same whichever row was assigned.
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

// The same row as an input.
inline RowIn as_input(RowOut row) {
  return RowIn{row.data, row.type, row.vectors, 1};
}

// Loads N values starting at element i; zeros past the row's end.
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

// Whether the row's vectors have 16 bytes: those can be fetched before their
// values are needed.
template <int N>
inline bool can_fetch(RowIn row) {
  return row.vectors && N * size_of(row.type) == 16;
}

// The vector that starts at element i; zeros past the row's end.
template <int N>
inline uint4 fetch(RowIn row, int i, int length) {
  if (in_row(i, N, length)) {
    return *(device const uint4*)(row.data + long(i) * size_of(row.type));
  }
  return uint4(0, 0, 0, 0);
}

// Whether fetch() gets the row's values. It does not for a last vector that
// extends past the row's end.
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
