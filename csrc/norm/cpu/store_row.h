// Copyright © 2026 mlx_norms contributors
//
// The pass that normalizes a row and stores it.

#pragma once

#include "csrc/norm/cpu/rows.h"

namespace {

// The row of x or of the residual that is read `ahead` rows later.
inline const char*
coming_row(const RowsIn& rows, int64_t row, int64_t ahead, int64_t end) {
  if (!rows.data) {
    return nullptr;
  }
  auto coming = row + ahead < end ? row + ahead : row;
  int size = rows.type == Float::f32 ? 4 : 2;
  return static_cast<const char*>(rows.data) + coming * rows.row_stride * size;
}

// What is done to the result y of a row, whose vector starts at element i.
struct Unchanged {
  Floats operator()(Floats y, int64_t) const {
    return y;
  }
};

// Stores a row, whose normalized vectors n(i) returns. With kFetch, for inputs
// of dtype T, a later row is prefetched while this one is computed.
template <
    typename T,
    bool kFetch,
    typename Early,
    typename Bias,
    typename F,
    typename After = Unchanged>
inline void store_row(
    const NormJob& job,
    int64_t row,
    int64_t ahead,
    Early early,
    Bias bias,
    F n,
    After after = {}) {
  const float* weight = row_of(job.weight, job, row);
  const float* row_bias = row_of(job.bias, job, row);
  auto* to = static_cast<T*>(job.normalized.data) + row * job.width;
  // The row that is stored `ahead` rows later.
  auto next = row + ahead < job.rows ? ahead * job.width : 0;
  auto end = job.rows + job.rows_after;
  auto* x = coming_row(job.in[kX], row, ahead, end);
  // A norm with a gate has no residual.
  auto* other = coming_row(
      job.in[kGate].data ? job.in[kGate] : job.in[kResidual], row, ahead, end);
  for_vectors(job.width, [=](int64_t i, auto extent) {
    if (kFetch) {
      __builtin_prefetch(x + i * sizeof(T));
      if (other) {
        __builtin_prefetch(other + i * sizeof(T));
      }
      __builtin_prefetch(to + next + i, 1);
    }
    Floats y = n(i);
    if (early) {
      y = round_to<T>(y);
    }
    y *= load(weight + i);
    if (bias) {
      y += load(row_bias + i);
    }
    store(to + i, after(y, i), extent);
  });
}

} // namespace
