// Copyright © 2026 mlx_norms contributors
//
// The statistics of a row, from sums of deviations from one of its elements.

#pragma once

#include "csrc/norm/cpu/root.h"
#include "csrc/norm/cpu/rows.h"

namespace {

template <bool kCenter>
struct Statistics {
  float mean;
  float correction; // the mean deviation from `mean`
  float rstd;

  Floats normalize(Floats v) const {
    return kCenter ? (v - mean - correction) * rstd : v * rstd;
  }
};

// The squared deviation from `shift` and the deviation; without center, the
// square.
template <bool kCenter>
struct Deviation {
  float shift;

  Term<1 + kCenter> operator()(Floats v, int64_t) const {
    if constexpr (kCenter) {
      Floats d = v - shift;
      return {d * d, d};
    } else {
      return {v * v};
    }
  }
};

// A row and its first sums, of deviations from one of its elements.
template <bool kCenter, typename T>
struct SummedRow {
  WholeRow<T> row;
  float shift;
  Sums<1 + kCenter> sums;
};

template <bool kCenter, typename T>
inline SummedRow<kCenter, T> sum_row(WholeRow<T> row) {
  float shift = load(row.data)[0];
  if constexpr (kCenter) {
    row.pad(shift); // no deviation past the row's end
  }
  return {
      row, shift, row.template sums<1 + kCenter>(Deviation<kCenter>{shift})};
}

// False for NaN, too.
inline bool is_finite(float v) {
  return __builtin_fabsf(v) <= __FLT_MAX__;
}

// What sums over a row are divided by.
inline float divisor(Root root, int64_t width) {
  return root.l2 ? 1.0f : width;
}

// The variance of deviations from `shift`, which is near the mean; `correction`
// becomes their mean. Not inlined: it is rare, and its callers compile faster.
template <typename T>
[[gnu::noinline]] float
variance_about(WholeRow<T> row, float shift, float& correction) {
  row.pad(shift);
  auto sums = row.template sums<2>(Deviation<true>{shift});
  correction = sums.v[1] / row.width;
  float variance = sums.v[0] / row.width - correction * correction;
  // inf would make the row zeros
  return is_finite(variance) ? variance : __builtin_nanf("");
}

// The mean is the shift plus the mean deviation from it.
template <bool kCenter, typename T>
inline Statistics<kCenter> row_statistics(
    const SummedRow<kCenter, T>& summed,
    Root root) {
  auto row = summed.row;
  auto width = row.width;
  Statistics<kCenter> s = {};
  float variance = summed.sums.v[0] / divisor(root, width);
  if constexpr (kCenter) {
    s.mean = summed.shift;
    s.correction = summed.sums.v[1] / width;
    float square = s.correction * s.correction;
    variance -= square;
    if (variance * 4 < square || !is_finite(variance)) {
      // The shift was two deviations or more from the mean, and rounding
      // errors of the squares count as much more in their difference; or they
      // are beyond float32. The mean is right and becomes the shift.
      s.mean += s.correction;
      variance = variance_about(row, s.mean, s.correction);
    }
  }
  s.rstd = inverse_root(root, variance);
  return s;
}

} // namespace
