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

// An array's flags, a function constant of a byte: its FloatType plus these.
// Rows are dense unless they are found by one of the launch's layouts.
enum RowFlags {
  kVectors = 4, // elements are contiguous and whole vectors aligned
  kOneRow = 8,  // without a layout: one row stands for all
  kTwoAxes = 8, // with one: its second size is not needed
  kLayout = 16, // times the place of its layout, from 1 on
  kLayoutWords = 6
};

constant bool whole [[function_constant]];   // no vector passes the row's end
constant bool no_tail [[function_constant]]; // none lies across it
// Rows are no multiple of 4 elements: no vectors are loaded, and the threads'
// elements alternate.
constant bool scattered [[function_constant]];

// Whether the n elements starting at i are in the row.
inline bool in_row(int i, int n, int length) {
  return whole || i + n <= length;
}

// A vector: N elements of a row, `step` apart, of which `count` are in the row.
template <int N>
struct Span {
  int begin;
  int count;
  int step;

  bool is_full() const thread {
    return count == N;
  }
  // If no vector lies across the row's end, one test serves all elements.
  bool has(int j) const thread {
    return no_tail ? is_full() : j < count;
  }
};

template <int N>
inline Span<N> span_at(int begin, int length) {
  bool full = in_row(begin, N, length);
  int tail = no_tail ? 0 : max(length - begin, 0);
  return Span<N>{begin, full ? N : tail, 1};
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

// Where in all layouts an array's begins.
inline int layout_begin(int flags) {
  return kLayoutWords * (flags / kLayout - 1);
}

// The element at which a row begins.
inline long row_begin(constant const int* layout, uint row) {
  uint outer = row / uint(layout[kSize0]);
  return long(row % uint(layout[kSize0])) * layout[kStride0] +
      long(outer % uint(layout[kSize1])) * layout[kStride1] +
      long(outer / uint(layout[kSize1])) * layout[kStride2];
}

// The same with one division, if there are at most two row axes.
inline long row_begin_of_two(constant const int* layout, uint row) {
  uint outer = row / uint(layout[kSize0]);
  return long(row - outer * uint(layout[kSize0])) * layout[kStride0] +
      long(outer) * layout[kStride1];
}

inline RowIn row_in(
    device const uchar* data,
    int flags,
    constant const int* layouts,
    uint row,
    int length) {
  bool strided = flags >= kLayout;
  constant const int* layout = layouts + layout_begin(flags);
  long at = !strided     ? (flags & kOneRow ? 0 : long(row) * length)
      : flags & kTwoAxes ? row_begin_of_two(layout, row)
                         : row_begin(layout, row);
  int step = strided ? layout[kStep] : 1;
  int type = float_type(flags);
  bool vectors = (flags & kVectors) && !scattered;
  return RowIn{data + at * size_of(type), type, vectors, step};
}

// Output rows are dense.
inline RowOut row_out(device uchar* data, int flags, uint row, int length) {
  int type = float_type(flags);
  bool vectors = (flags & kVectors) && !scattered;
  return RowOut{data + long(row) * length * size_of(type), type, vectors};
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

template <int N>
inline void clear(thread float* v) {
  for (int j = 0; j < N; ++j) {
    v[j] = 0.0f;
  }
}

// Loads N values; zeros past the row's end.
template <int N>
inline void read(RowIn row, Span<N> span, thread float* v) {
  if (row.vectors && span.is_full()) {
    long at = long(span.begin) * size_of(row.type);
    load_vector<N>(row.data + at, 0, row.type, v);
    return;
  }
  if (span.count == 0) {
    clear<N>(v);
    return;
  }
  // From one to the next: addresses that are found at once fill registers. Past
  // the row's end the last element again, instead of a branch.
  long size = long(row.step) * size_of(row.type);
  device const uchar* at = row.data + long(span.begin) * size;
  for (int j = 0; j < N; ++j) {
    at += j > 0 && span.has(j) ? size * span.step : 0;
    float of_row = load(at, row.type);
    v[j] = span.has(j) ? of_row : 0.0f;
  }
}

template <int N>
inline void read(RowIn row, int i, int length, thread float* v) {
  read<N>(row, span_at<N>(i, length), v);
}

// Whether the row's vectors have 16 bytes: those can be fetched before their
// values are needed.
template <int N>
inline bool can_fetch(RowIn row) {
  return row.vectors && N * size_of(row.type) == 16;
}

// Whether this vector can be.
template <int N>
inline bool can_fetch(RowIn row, Span<N> span) {
  return can_fetch<N>(row) && span.is_full();
}

template <int N>
inline uint4 fetch(RowIn row, Span<N> span) {
  long at = long(span.begin) * size_of(row.type);
  return *(device const uint4*)(row.data + at);
}

// As read(), of a row of this thread's. On Metal a whole vector past its end is
// the first one, which is dropped: that takes less than a branch.
template <int N>
inline void read_own(RowIn row, Span<N> span, thread float* v) {
#ifndef __CUDACC__
  if (can_fetch<N>(row) && no_tail && !whole) {
    bool full = span.is_full();
    Span<N> there = Span<N>{full ? span.begin : 0, N, 1};
    uint4 bits = fetch<N>(row, there);
    unpack<N>(full ? bits : uint4(0, 0, 0, 0), row.type, v);
    return;
  }
#endif
  read<N>(row, span, v);
}

// Whether a vector of the row has 16 bytes and is stored at once.
template <int N>
inline bool can_store(RowOut row, Span<N> span) {
  return can_fetch<N>(as_input(row), span);
}

template <int N>
inline void store_bits(RowOut row, Span<N> span, uint4 bits) {
  long at = long(span.begin) * size_of(row.type);
  *(device uint4*)(row.data + at) = bits;
}

template <int N>
inline void write(RowOut row, Span<N> span, thread const float* v) {
  if (row.vectors && span.is_full()) {
    long at = long(span.begin) * size_of(row.type);
    store_vector<N>(row.data + at, row.type, v);
  } else if (!no_tail || span.is_full()) {
    long size = size_of(row.type);
    device uchar* to = row.data + span.begin * size;
    for (int j = 0; j < N; ++j) {
      if (no_tail || span.has(j)) {
        store(to, row.type, v[j]);
      }
      to += size * span.step;
    }
  }
}

// Stores values that round_vector() has rounded to the row's dtype.
template <int N>
inline void write_rounded(RowOut row, Span<N> span, thread const float* v) {
#ifndef __CUDACC__ // where rounding them again is one instruction
  row.type = row.type == kBFloat16 ? kRoundedBFloat16 : row.type;
#endif
  write<N>(row, span, v);
}
