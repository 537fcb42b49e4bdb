// Copyright © 2026 mlx_norms contributors
//
// The rows that are read: in place, or as a copy in float32.

#pragma once

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
  Floats value(int64_t i, Whole extent) const {
    return (*this)(i, extent);
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

// A row in float32, padded to a multiple of kRowMultiple.
struct FloatRow {
  using Element = float;

  const float* data;
  float* padded; // the same row; null if it needs no padding
  int64_t width;

  // Sets every lane past the row's end to value.
  void pad(float value) const {
    if (!padded) {
      return;
    }
    int64_t i = width / kWidth * kWidth;
    store(padded + i, replace_from(load(padded + i), width - i, value));
    for (i += kWidth; i < mlx_norms::cpu::padded(width); i += kWidth) {
      store(padded + i, splat(value));
    }
  }

  // K sums of term(v, i) over the row's vectors v, which start at element i.
  template <int K, typename F>
  Sums<K> sums(F term) const {
    auto* row = data;
    return pairwise_sums<K>(mlx_norms::cpu::padded(width), [=](int64_t i) {
      return term(load(row + i), i);
    });
  }
};

inline FloatRow padded_row(float* row, int64_t width) {
  FloatRow padded_row{row, width == padded(width) ? nullptr : row, width};
  padded_row.pad(0.0f);
  return padded_row;
}

// Whether a row can be read in place: it is in float32 and needs no padding.
inline bool is_float_row(const RowsIn& rows, int64_t width) {
  return rows.type == Float::f32 && rows.step == 1 && width == padded(width);
}

inline FloatRow float_row(const RowsIn& rows, int64_t row, int64_t width) {
  auto* data = static_cast<const float*>(rows.data) + row * rows.row_stride;
  return {data, nullptr, width};
}

// The row itself if it can be read in place, else a copy.
inline FloatRow
load_row(const RowsIn& rows, int64_t row, int64_t width, float* scratch) {
  if (is_float_row(rows, width)) {
    return float_row(rows, row, width);
  }
  with_type(rows.type, [&](auto type) {
    Row<typename decltype(type)::type> from(rows, row);
    for_vectors(width, [=](int64_t i, auto extent) {
      store(scratch + i, from(i, extent));
    });
  });
  return padded_row(scratch, width);
}

// Stores a row in float32 as an output's first one.
inline void
store_float_row(const float* from, int64_t width, const RowsOut& to) {
  with_type(to.type, [&](auto type) {
    auto* out = static_cast<typename decltype(type)::type*>(to.data);
    for_vectors(width, [=](int64_t i, auto extent) {
      store(out + i, load(from + i, extent), extent);
    });
  });
}

// A row that is read in place, in its own dtype, and needs no padding.
template <typename T>
struct WholeRow {
  using Element = T;

  const T* data;
  int64_t width;

  void pad(float) const {}

  template <int K, typename F>
  Sums<K> sums(F term) const {
    return pairwise_sums<K>(width, [row = data, term](int64_t i) {
      return term(load(row + i), i);
    });
  }
};

// Whether rows of this width can be read in place each time they are needed.
inline bool are_whole_rows(const RowsIn& rows, int64_t width) {
  return (kConvertsFast || rows.type == Float::f32) && rows.step == 1 &&
      width == padded(width);
}

inline bool are_whole_rows(const NormJob& job) {
  auto whole = [&](const RowsIn& rows) {
    return rows.type == job.normalized.type && are_whole_rows(rows, job.width);
  };
  return whole(job.in[kX]) &&
      (!job.in[kResidual].data || whole(job.in[kResidual]));
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
inline int64_t weight_offset(int64_t rows, int64_t row, int64_t width) {
  return (rows == 1 ? 0 : row % rows) * padded(width);
}

template <typename Job>
int64_t weight_offset(const Job& job, int64_t row) {
  return weight_offset(job.weight.rows, job.first_row + row, job.width);
}

template <typename Job>
const float* row_of(const Weight& of, const Job& job, int64_t row) {
  return of.data + weight_offset(of.rows, job.first_row + row, job.width);
}

} // namespace
