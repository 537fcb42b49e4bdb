// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/cpu/gradients.h"
#include "csrc/norm/cpu/level.h"

namespace {

// take(row) returns a row's VJPRow.
template <
    typename O,
    bool kCenter,
    bool kWhole,
    typename WeightSum,
    typename BiasSum,
    typename F>
inline void norm_vjp_rows(
    const NormVJPJob& job,
    WeightSum wants_weight,
    BiasSum wants_bias,
    F take) {
  auto weight_rows = job.weight.rows;
  for (int64_t row = 0; row < job.rows;) {
    decltype(take(0)) rows[kPartialRows];
    auto begin = job.first_row + row;
    if (kWhole && weight_rows == 1 && begin % kPartialRows == 0 &&
        job.rows - row >= kPartialRows) {
      for (int r = 0; r < kPartialRows; ++r) {
        rows[r] = take(row + r);
      }
      gradients_of_rows<O, kCenter, kWhole, kPartialRows>(
          job, row, wants_weight, wants_bias, rows);
      row += kPartialRows;
      continue;
    }
    rows[0] = take(row);
    gradients_of_rows<O, kCenter, kWhole, 1>(
        job, row, bool(wants_weight), bool(wants_bias), rows);
    add_partials(job, row, wants_weight, wants_bias);
    ++row;
  }
}

bool are_whole_rows(const NormVJPJob& job) {
  auto whole = [&](const RowsIn& rows) {
    return rows.type == job.in[kX].type && are_whole_rows(rows, job.width);
  };
  return whole(job.in[kX]) && whole(job.in[kCotangent]) &&
      (!job.in[kSumCotangent].data || whole(job.in[kSumCotangent])) &&
      (!job.input.data || job.input.type == job.in[kX].type);
}

// Not inlined: one for all gradients that are wanted.
template <typename T, bool kCenter>
[[gnu::noinline]] VJPRow<kCenter, T, T> take_whole_row(
    const NormVJPJob& job,
    int64_t row) {
  auto at = [row](const RowsIn& rows) {
    return static_cast<const T*>(rows.data) + row * rows.row_stride;
  };
  VJPRow<kCenter, T, T> to{
      at(job.in[kX]), at(job.in[kCotangent]), nullptr, {}, 0, 0};
  if (job.in[kSumCotangent].data) {
    to.sum_cotangent = at(job.in[kSumCotangent]);
  }
  WholeRow<T> s{to.s, job.width};
  measure<kCenter>(to, s, job, row);
  return to;
}

template <typename T, bool kCenter, typename WeightSum, typename BiasSum>
void vjp_of_whole_rows(
    const NormVJPJob& job,
    WeightSum wants_weight,
    BiasSum wants_bias) {
  norm_vjp_rows<T, kCenter, true>(
      job, wants_weight, wants_bias, [&](int64_t row) {
        return take_whole_row<T, kCenter>(job, row);
      });
}

// For any rows, in float32.
template <typename O, bool kCenter>
void vjp_of_other_rows(const NormVJPJob& job) {
  auto width = job.width;
  bool wants_weight = job.weight_gradient.sum,
       wants_bias = job.bias_gradient.sum;
  norm_vjp_rows<O, kCenter, false>(
      job, wants_weight, wants_bias, [&](int64_t row) {
        auto* scratch = job.scratch;
        auto s = load_row(job.in[kX], row, width, scratch);
        auto g =
            load_row(job.in[kCotangent], row, width, scratch += padded(width));
        VJPRow<kCenter, float, float> to{s.data, g.data, nullptr, {}, 0, 0};
        if (job.in[kSumCotangent].data) {
          scratch += padded(width);
          to.sum_cotangent =
              load_row(job.in[kSumCotangent], row, width, scratch).data;
        }
        if (kCenter) {
          s.pad(load(s.data)[0]); // no deviation past the row's end
        }
        measure<kCenter>(to, s, job, row);
        return to;
      });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_vjp(const NormVJPJob& job) {
  if (job.in[kGate].data) {
    return vjp_of_gated_rows(job);
  }
  with_flag(job.center, [&](auto center) {
    if (!are_whole_rows(job)) {
      return with_type(job.input.type, [&](auto type) {
        vjp_of_other_rows<typename decltype(type)::type, center.value>(job);
      });
    }
    with_whole_type(job.in[kX].type, [&](auto type) {
      using T = typename decltype(type)::type;
      bool bias = job.bias_gradient.sum;
      if (!job.weight_gradient.sum) {
        vjp_of_whole_rows<T, center.value>(job, Flag<false>{}, bias);
      } else if (bias) {
        vjp_of_whole_rows<T, center.value>(job, Flag<true>{}, Flag<true>{});
      } else {
        vjp_of_whole_rows<T, center.value>(job, Flag<true>{}, Flag<false>{});
      }
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
