// Copyright © 2026 mlx_norms contributors
//
// The gradients of some rows.

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
template <bool kCenter, typename S, typename G>
struct VJPRow {
  const S* s;
  const G* cotangent;
  const G* sum_cotangent; // null: none
  Statistics<kCenter> statistics;
  float mean_wgn;
  float mean_wg;
};

// The sum of wg * n. Not inlined, as variance_about() is not.
template <bool kCenter, typename AnyRow, typename G>
[[gnu::noinline]] float sum_of_normalized(
    Statistics<kCenter> s,
    AnyRow row,
    const G* cotangent,
    const float* weight) {
  auto sum = row.template sums<1>([=](Floats v, int64_t i) {
    Floats wg = load(cotangent + i) * load(weight + i);
    return Term<1>{wg * s.normalize(v)};
  });
  return sum.v[0];
}

// From the sums of a pass over the row: those with the cotangent are of
// deviations from `shift`, too.
template <bool kCenter, typename AnyRow, typename G>
inline void finish_vjp_row(
    VJPRow<kCenter, typename AnyRow::Element, G>& to,
    AnyRow row,
    float shift,
    Sums<kCenter ? 4 : 2> sums,
    const float* weight,
    Root root) {
  float width = divisor(root, row.width);
  if constexpr (kCenter) {
    SummedRow<true, AnyRow> summed{row, shift, {sums.v[0], sums.v[1]}};
    auto s = to.statistics = row_statistics(summed, root);
    to.mean_wg = sums.v[3] / width;
    to.mean_wgn = (sums.v[2] / width - s.correction * to.mean_wg) * s.rstd;
  } else {
    SummedRow<false, AnyRow> summed{row, 0.0f, {sums.v[0]}};
    to.statistics = row_statistics(summed, root);
    to.mean_wgn = sums.v[1] / width * to.statistics.rstd;
    to.mean_wg = 0.0f;
  }
  if (to.statistics.mean != shift || !is_finite(to.mean_wgn)) {
    // The sum with the cotangent was of other deviations, or beyond float32.
    to.mean_wgn =
        sum_of_normalized(to.statistics, row, to.cotangent, weight) / width;
  }
  if (is_constant(root, to.statistics.rstd)) {
    to.mean_wgn = 0.0f;
  }
}

template <bool kCenter, typename AnyRow, typename G>
inline void measure_vjp_row(
    VJPRow<kCenter, typename AnyRow::Element, G>& to,
    AnyRow row,
    const float* weight,
    Root root) {
  auto* cotangent = to.cotangent;
  float shift = kCenter ? float(load(row.data)[0]) : 0.0f;
  auto sums = row.template sums<kCenter ? 4 : 2>([=](Floats v, int64_t i) {
    Floats d = v - shift;
    Floats wg = load(cotangent + i) * load(weight + i);
    if constexpr (kCenter) {
      return Term<4>{d * d, d, wg * d, wg};
    } else {
      return Term<2>{v * v, wg * v};
    }
  });
  finish_vjp_row<kCenter>(to, row, shift, sums, weight, root);
}

template <bool kCenter, typename To, typename AnyRow>
inline void measure(To& to, AnyRow s, const NormVJPJob& job, int64_t row) {
  if (job.identity) {
    return;
  }
  auto* weight = row_of(job.weight, job, row);
  measure_vjp_row<kCenter>(to, s, weight, job.root);
}

// The gradients of kRows rows starting at `row`. The input's is rstd * (wg -
// mean(wg) - n * mean(wg * n)) plus the sum's cotangent; without center there
// is no mean(wg). The parameters' are added to the partial sums or, if kRows is
// kPartialRows, directly to the compensated sums. With kWhole the next rows are
// prefetched.
template <
    typename O,
    bool kCenter,
    bool kWhole,
    int kRows,
    typename WeightSum,
    typename BiasSum,
    typename S,
    typename G>
inline void gradients_of_rows(
    const NormVJPJob& job,
    int64_t row,
    WeightSum wants_weight,
    BiasSum wants_bias,
    const VJPRow<kCenter, S, G>* in) {
  auto at = weight_offset(job, row);
  const float* weight = job.weight.data + at;
  auto weight_sum = job.weight_gradient;
  auto bias_sum = job.bias_gradient;
  float* weight_partial = weight_sum.partial + (wants_weight ? at : 0);
  float* bias_partial = bias_sum.partial + (wants_bias ? at : 0);
  bool clamp = job.clamp && job.in[kX].type == Float::f16;
  bool identity = job.identity;
  auto width = job.width;
  auto* to = static_cast<O*>(job.input.data);
  to = to ? to + row * width : nullptr;
  constexpr bool kAll = kRows == kPartialRows;
  // The number of rows to the next ones; 0 if there are none.
  int64_t ahead = row + 2 * kRows <= job.rows ? kRows : 0;
  auto ahead_s = ahead * job.in[kX].row_stride;
  auto ahead_cotangent = ahead * job.in[kCotangent].row_stride;

  auto vectors = [=](int64_t i, auto extent) {
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
      Floats n = identity ? x : each.statistics.normalize(x);
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
      store(to + r * width + i, dx, extent);
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
  if constexpr (kWhole) {
    for (int64_t i = 0; i < width; i += kLanes) {
      for (int r = 0; r < kRows; ++r) {
        prefetch_lanes(in[r].s + ahead_s + i);
        prefetch_lanes(in[r].cotangent + ahead_cotangent + i);
        if (to) {
          prefetch_lanes<1>(to + (ahead + r) * width + i);
        }
      }
      for (int j = 0; j < kLanes; j += kWidth) {
        vectors(i + j, Whole{});
      }
    }
  } else {
    for_vectors(width, vectors);
  }
}

// After this row, adds the partial sums of the latest rows, if they are enough.
inline void add_partials(
    const NormVJPJob& job,
    int64_t row,
    bool wants_weight,
    bool wants_bias) {
  auto weight_rows = job.weight.rows;
  auto done = job.first_row + row + 1;
  if (wants_weight && done % (kPartialRows * weight_rows) == 0) {
    add_partial(job.weight_gradient, weight_rows * padded(job.width));
  }
  if (wants_bias && done % (kPartialRows * weight_rows) == 0) {
    add_partial(job.bias_gradient, weight_rows * padded(job.width));
  }
}

} // namespace
