// Copyright © 2026 mlx_norms contributors
//
// The gradients of some rows, which are read in whole vectors.

#pragma once

#include "csrc/common/float16.h"
#include "csrc/norm/cpu/compensated_sum.h"
#include "csrc/norm/cpu/statistics.h"

namespace {

// The number of rows whose parameter gradients are added up before they are
// added to the compensated sum.
constexpr int kPartialRows = 4;

// What a row's gradients are computed from: the rows of the norm's input and of
// the cotangents, the statistics, and the means over the row of wg * n and,
// with center, of wg, where wg is the weighted cotangent.
template <bool kCenter, typename T>
struct VJPRow {
  const T* s;
  const T* cotangent;
  const T* sum_cotangent; // null: none
  Statistics<kCenter> statistics;
  float mean_wgn;
  float mean_wg;
};

// The sum of wg * n. Not inlined, as variance_about() is not.
template <bool kCenter, typename T>
[[gnu::noinline]] float sum_of_normalized(
    Statistics<kCenter> s,
    WholeRow<T> row,
    const T* cotangent,
    const float* weight) {
  auto sum = row.template sums<1>([=](Floats v, int64_t i) {
    Floats wg = load(cotangent + i) * load(weight + i);
    return Term<1>{wg * s.normalize(v)};
  });
  return sum.v[0];
}

// Takes all sums over a row in one pass, those with the cotangent of deviations
// from its first element, too.
template <bool kCenter, typename T>
inline void measure(VJPRow<kCenter, T>& to, const NormVJPJob& job, int64_t at) {
  if (job.identity) {
    to.statistics.rstd = 1.0f;
    return;
  }
  WholeRow<T> row{to.s, job.width};
  auto* cotangent = to.cotangent;
  const float* weight = row_of(job.weight, job, at);
  float shift = kCenter ? float(load(row.data)[0]) : 0.0f;
  if constexpr (kCenter) {
    row.pad(shift); // no deviation past the row's end
  }
  auto sums = row.template sums<kCenter ? 4 : 2>([=](Floats v, int64_t i) {
    Floats d = v - shift;
    Floats wg = load(cotangent + i) * load(weight + i);
    if constexpr (kCenter) {
      return Term<4>{d * d, d, wg * d, wg};
    } else {
      return Term<2>{v * v, wg * v};
    }
  });
  float width = divisor(job.root, row.width);
  auto& s = to.statistics;
  if constexpr (kCenter) {
    SummedRow<true, T> summed{row, shift, {sums.v[0], sums.v[1]}};
    s = row_statistics(summed, job.root);
    to.mean_wg = sums.v[3] / width;
    to.mean_wgn = (sums.v[2] / width - s.correction * to.mean_wg) * s.rstd;
  } else {
    SummedRow<false, T> summed{row, 0.0f, {sums.v[0]}};
    s = row_statistics(summed, job.root);
    to.mean_wgn = sums.v[1] / width * s.rstd;
    to.mean_wg = 0.0f;
  }
  if (s.mean != shift || !is_finite(to.mean_wgn)) {
    // The sum with the cotangent was of other deviations, or beyond float32.
    to.mean_wgn = sum_of_normalized(s, row, cotangent, weight) / width;
  }
  if (is_constant(job.root, s.rstd)) {
    to.mean_wgn = 0.0f;
  }
}

// The gradients of kRows rows starting at `row`. The input's, which is stored
// in `to` unless that is null, is rstd * (wg - mean(wg) - n * mean(wg * n))
// plus the sum's cotangent; without center there is no mean(wg). The
// parameters' are added to the partial sums or, if kRows is kPartialRows,
// directly to the compensated sums. ahead() prefetches what comes after the
// vectors at an element.
template <
    bool kCenter,
    int kRows,
    typename WeightSum,
    typename BiasSum,
    typename T,
    typename F>
inline void gradients_of_rows(
    const NormVJPJob& job,
    int64_t row,
    WeightSum wants_weight,
    BiasSum wants_bias,
    const VJPRow<kCenter, T>* in,
    T* to,
    F ahead) {
  auto at = weight_offset(job, job.weight.rows, row);
  const float* weight = job.weight.data + at;
  auto weight_sum = job.weight_gradient;
  auto bias_sum = job.bias_gradient;
  float* weight_partial = weight_sum.partial + (wants_weight ? at : 0);
  float* bias_partial = bias_sum.partial + (wants_bias ? at : 0);
  bool clamp = job.clamp && job.in[kX].type == Float::f16;
  bool identity = job.identity;
  auto width = job.width;
  constexpr bool kAll = kRows == kPartialRows;

  auto vectors = [=](int64_t i) {
    Floats w = load(weight + i);
    Floats of_weight = {}, of_bias = {};
    if (wants_weight && !kAll) {
      of_weight = load(weight_partial + i);
    }
    if (wants_bias && !kAll) {
      of_bias = load(bias_partial + i);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      auto& each = in[r];
      Floats x = load(each.s + i);
      Floats g = load(each.cotangent + i);
      Floats n = each.statistics.normalize(x);
      if (wants_weight) {
        of_weight += g * n;
      }
      if (wants_bias) {
        of_bias += g;
      }
      if (!to) {
        continue;
      }
      Floats wg = g * w;
      Floats dx = kCenter ? wg - each.mean_wg : wg;
      if (!identity) {
        dx = (dx - n * each.mean_wgn) * each.statistics.rstd;
      }
      if (each.sum_cotangent) {
        dx += load(each.sum_cotangent + i);
      }
      if (clamp) {
        dx = x == kFloat16Max ? Floats{} : dx;
        dx = x == -kFloat16Max ? Floats{} : dx;
      }
      store(to + r * width + i, dx);
    }
    if (wants_weight) {
      if (kAll) {
        add_compensated(weight_sum, i, of_weight);
      } else {
        store(weight_partial + i, of_weight);
      }
    }
    if (wants_bias) {
      if (kAll) {
        add_compensated(bias_sum, i, of_bias);
      } else {
        store(bias_partial + i, of_bias);
      }
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    ahead(i);
    for (int j = 0; j < kLanes; j += kWidth) {
      vectors(i + j);
    }
  }
  for (; i < width; i += kWidth) {
    vectors(i);
  }
}

// After this row, adds the partial sums of the latest rows, if they are enough.
inline void add_partials(const NormVJPJob& job, int64_t row) {
  auto weight_rows = job.weight.rows;
  auto done = job.first_row + row + 1;
  if (done % (kPartialRows * weight_rows) != 0) {
    return;
  }
  const CompensatedSum sums[] = {job.weight_gradient, job.bias_gradient};
  for (const auto& of : sums) {
    if (of.sum) {
      add_partial(of, weight_rows * padded(job.width));
    }
  }
}

} // namespace
