// Copyright (c) 2026 mlx_norms contributors
//
// The rows that are multiplied: x or, if they are normalized in the same pass,
// x + residual rounded to x's dtype. Their scale comes from sums taken in that
// pass, for LayerNorm of x less a shift, so that a large mean costs no digits.

#pragma once

#include "kernels/common/parameters.h"
#include "kernels/norm/statistics.h"

constant bool linear_has_residual [[function_constant]];
constant int linear_x_flags [[function_constant]];
constant int linear_residual_flags [[function_constant]];
constant int linear_sum_flags [[function_constant]];
// Without a norm the residual is added to the product.
constant bool linear_normed [[function_constant]];
constant bool linear_adds_first = linear_has_residual && linear_normed;
constant bool linear_adds_last = linear_has_residual && !linear_normed;

struct NormedRow {
  RowIn x;
  RowIn residual;
};

// Adds P elements of the residual to those of x, and rounds the sums.
template <int P>
inline void
add_rounded(int type, thread const float* of_residual, thread float* v) {
  for (int j = 0; j < P; ++j) {
    v[j] += of_residual[j];
  }
  round_vector<P>(type, v);
}

// P elements starting at i; zeros past the row's end.
template <int P>
inline void
read_normed(thread const NormedRow& row, int i, int length, thread float* v) {
  read<P>(row.x, i, length, v);
  if (linear_adds_first) {
    float of_residual[P];
    read<P>(row.residual, i, length, of_residual);
    add_rounded<P>(row.x.type, of_residual, v);
  }
}

// Whether rows are found by a vector's index alone. NVIDIA's GPUs have
// registers for an address of each, and take more for the index.
#ifdef __CUDACC__
constant bool linear_indexed = false;
#else
constant bool linear_indexed = (linear_x_flags & ~3) == kVectors &&
    (!linear_adds_first || (linear_residual_flags & ~3) == kVectors);
#endif

// An array from its first row on.
inline RowIn whole_array(device const uchar* data, int flags) {
  return RowIn{data, float_type(flags), bool(flags & kVectors), 1};
}

// P elements of an array that starts with `row`: those of vector `at`, of which
// `left` are in its row; zeros past them. Apple's GPUs add an index of 32 bits
// to an address as they load, so that no row's address takes registers.
template <int P>
inline void read_at(RowIn row, uint at, int left, thread float* v) {
  if (!row.vectors || !in_row(0, P, left)) {
    row.data += ulong(at) * uint(P * size_of(row.type));
    read<P>(row, 0, left, v);
  } else {
    load_vector<P>(row.data, at, row.type, v);
  }
}

// Likewise of x, or x + residual, whose first rows those of `rows` are.
template <int P>
inline void read_normed_at(
    thread const NormedRow& rows,
    uint at,
    int left,
    thread float* v) {
  read_at<P>(rows.x, at, left, v);
  if (linear_adds_first) {
    float of_residual[P];
    read_at<P>(rows.residual, at, left, of_residual);
    add_rounded<P>(rows.x.type, of_residual, v);
  }
}

inline float load_element(RowIn row, int i) {
  return load(row.data + long(i) * row.step * size_of(row.type), row.type);
}

// The mean of the row's first elements, one per lane. It is close to the row's
// mean unless one of them is an outlier.
inline float shift_of(
    thread const NormedRow& row,
    int lane,
    int length,
    threadgroup float4* partial) {
  float v = 0.0f;
  if (lane < length) {
    v = load_element(row.x, lane);
    if (linear_adds_first) {
      v += load_element(row.residual, lane);
    }
  }
  return simds_sum(v, 0, lane, 1, partial) / float(min(length, kSimdSize));
}

// The statistics of a row's values less its shift.
struct RowScale {
  float mean; // less the shift
  float variance;

  // Whether the shift is so far from the mean that digits are lost or the
  // squares are beyond float32. A mean of few elements is never exact, so the
  // bound is looser than in statistics.h.
  bool shift_is_far() const thread {
    return !is_finite(variance) || variance < mean * mean;
  }

  float inverse_root(float eps) const thread {
    float v = variance;
    if (center) {
      v = v < 0.0f ? 0.0f : finite_or_nan(v);
    }
    return precise::rsqrt(v + eps);
  }
};

inline RowScale scale_of(float first, float squares, int length) {
  float mean = center ? first / float(length) : 0.0f;
  return RowScale{mean, squares / float(length) - mean * mean};
}
