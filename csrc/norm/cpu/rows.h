// Copyright © 2026 mlx_norms contributors
//
// The rows that are read: in place, or as a copy in float32.

#pragma once

#include <type_traits>

#include "csrc/cpu/pairwise_sum.h"
#include "csrc/norm/cpu_kernels.h"
#include "csrc/norm/cpu_types.h"

namespace {

using namespace mlx_norms::cpu;

// An input row.
template <typename T>
struct Row {
  const T* data;
  int64_t step;

  Row(const RowsIn& rows, int64_t row)
      : data(static_cast<const T*>(rows.data) + row * rows.row_stride),
        step(rows.step) {}

  template <typename Extent>
  [[gnu::always_inline]] Floats operator()(int64_t i, Extent extent) const {
    return step == 1 ? load(data + i, extent) : gather(i, extent);
  }

 private:
  [[gnu::always_inline]] Floats gather(int64_t i, Whole) const {
    return gather(i, Part{kWidth});
  }
  // Not inlined: it would keep the loops from being compiled well.
  [[gnu::noinline]] Floats gather(int64_t i, Part part) const {
    T lanes[kWidth] = {};
    for (int j = 0; j < part.n; ++j) {
      lanes[j] = data[(i + j) * step];
    }
    return load(lanes);
  }
};

// A row that is read in whole vectors: in float32 and padded to a multiple of
// kRowMultiple, or of any dtype if it needs no padding.
template <typename T>
struct WholeRow {
  const T* data;
  int64_t width;

  // Sets every lane past the row's end to value.
  void pad(float value) const {
    if constexpr (std::is_same_v<T, float>) {
      auto end = padded(width);
      auto* row = const_cast<float*>(data); // a copy, if it has lanes to set
      int64_t i = width / kWidth * kWidth;
      if (i < width) {
        store(row + i, replace_from(load(row + i), width - i, value));
        i += kWidth;
      }
      for (; i < end; i += kWidth) {
        store(row + i, splat(value));
      }
    }
  }

  // K sums of term(v, i) over the row's vectors v, which start at element i.
  template <int K, typename F>
  Sums<K> sums(F term) const {
    return pairwise_sums<K>(padded(width), [row = data, term](int64_t i) {
      return term(load(row + i), i);
    });
  }
};

// Copies n rows in float32, each with zeros as its padding.
inline void load_rows(
    const RowsIn& rows,
    int64_t first,
    int64_t n,
    int64_t width,
    float* to) {
  with_type(rows.type, [&](auto type) {
    for (auto row = first; row < first + n; ++row, to += padded(width)) {
      Row<typename decltype(type)::type> from(rows, row);
      int64_t end = 0;
      for_vectors(width, [=, &end](int64_t i, auto extent) {
        store(to + i, from(i, extent));
        end = i + kWidth;
      });
      for (; end < padded(width); end += kWidth) {
        store(to + end, Floats{});
      }
    }
  });
}

// Stores n rows in float32 as an output's.
inline void store_rows(
    const float* from,
    int64_t width,
    const RowsOut& to,
    int64_t first,
    int64_t n) {
  with_type(to.type, [&](auto type) {
    auto* out =
        static_cast<typename decltype(type)::type*>(to.data) + first * width;
    for (auto row = first; row < first + n; ++row) {
      for_vectors(width, [=](int64_t i, auto extent) {
        store(out + i, load(from + i, extent), extent);
      });
      out += width;
      from += padded(width);
    }
  });
}

// Prefetches rows that are read or stored later, if they are there.
struct ComingRows {
  const char* data;
  int64_t row_bytes;
  int64_t element_bytes;

  ComingRows(const RowsIn& rows)
      : ComingRows(rows.data, rows.type, rows.row_stride) {}
  ComingRows(const RowsOut& rows, int64_t width)
      : ComingRows(rows.data, rows.type, width) {}
  ComingRows(const void* data, Float type, int64_t row_stride)
      : data(static_cast<const char*>(data)),
        row_bytes(row_stride * (type == Float::f32 ? 4 : 2)),
        element_bytes(type == Float::f32 ? 4 : 2) {}

  template <int kWrite = 0>
  [[gnu::always_inline]] void prefetch(int64_t row, int64_t i) const {
    if (data) {
      __builtin_prefetch(data + row * row_bytes + i * element_bytes, kWrite);
    }
  }
};

// Whether rows of this dtype and width can be read in place each time they are
// needed.
inline bool are_whole_rows(const RowsIn& rows, Float type, int64_t width) {
  return rows.type == type && (kConvertsFast || type == Float::f32) &&
      rows.step == 1 && width == padded(width);
}

// Calls f(type), with the type of rows that are read in place.
template <typename F>
inline void with_whole_type(Float type, F f) {
  if constexpr (kConvertsFast) {
    with_type(type, f);
  } else {
    f(Type<float>{});
  }
}

// The row of a weight that this row of the array uses, or of its gradient, as
// an offset.
template <typename Job>
int64_t weight_offset(const Job& job, int64_t rows, int64_t row) {
  return (rows == 1 ? 0 : (job.first_row + row) % rows) * padded(job.width);
}

template <typename Job>
const float* row_of(const Weight& of, const Job& job, int64_t row) {
  return of.data + weight_offset(job, of.rows, row);
}

} // namespace
