// Copyright © 2026 mlx_norms contributors
//
// The gradients of rows of one dtype without a gate, which are read in place.
// All others are any_vjp.cpp's.

#include "csrc/norm/cpu/gradients.h"
#include "csrc/norm/cpu/level.h"

namespace {

// Not inlined: one for all gradients that are wanted.
template <bool kCenter, typename T>
[[gnu::noinline]] VJPRow<kCenter, T> take_row(
    const NormVJPJob& job,
    int64_t row) {
  auto at = [&](Operand operand) { return Row<T>(job.in[operand], row).data; };
  VJPRow<kCenter, T> to{at(kX), at(kCotangent), nullptr, {}, 0, 0};
  if (job.in[kSumCotangent].data) {
    to.sum_cotangent = at(kSumCotangent);
  }
  measure(to, job, row);
  return to;
}

// Meanwhile the next rows are prefetched.
template <
    bool kCenter,
    int kRows,
    typename T,
    typename WeightSum,
    typename BiasSum>
inline void vjp_of_rows(
    const NormVJPJob& job,
    int64_t row,
    WeightSum wants_weight,
    BiasSum wants_bias) {
  VJPRow<kCenter, T> in[kRows];
  for (int r = 0; r < kRows; ++r) {
    in[r] = take_row<kCenter, T>(job, row + r);
  }
  auto* to = static_cast<T*>(job.out[kX].data);
  to = to ? to + row * job.width : nullptr;
  // The number of rows to the next ones; 0 if there are none.
  int64_t ahead = row + 2 * kRows <= job.rows ? kRows : 0;
  auto ahead_s = ahead * job.in[kX].row_stride;
  auto ahead_cotangent = ahead * job.in[kCotangent].row_stride;
  // GCC drops calls of functions that only prefetch, if they are not inlined.
  auto prefetch = [&](int64_t i) __attribute__((always_inline)) {
    for (int r = 0; r < kRows; ++r) {
      prefetch_lanes(in[r].s + ahead_s + i);
      prefetch_lanes(in[r].cotangent + ahead_cotangent + i);
      if (to) {
        prefetch_lanes<1>(to + (ahead + r) * job.width + i);
      }
    }
  };
  gradients_of_rows<kCenter, kRows>(
      job, row, wants_weight, wants_bias, in, to, prefetch);
}

template <bool kCenter, typename T, typename WeightSum, typename BiasSum>
void vjp_of_all_rows(
    const NormVJPJob& job,
    WeightSum wants_weight,
    BiasSum wants_bias) {
  for (int64_t row = 0; row < job.rows;) {
    if (job.weight.rows == 1 && (job.first_row + row) % kPartialRows == 0 &&
        job.rows - row >= kPartialRows) {
      vjp_of_rows<kCenter, kPartialRows, T>(job, row, wants_weight, wants_bias);
      row += kPartialRows;
    } else {
      vjp_of_rows<kCenter, 1, T>(
          job, row, bool(wants_weight), bool(wants_bias));
      add_partials(job, row);
      ++row;
    }
  }
}

bool suits(const NormVJPJob& job) {
  auto type = job.in[kX].type;
  for (int i = 0; i < mlx_norms::kOperands; ++i) {
    const auto& rows = job.in[i];
    if (rows.data && (i == kGate || !are_whole_rows(rows, type, job.width))) {
      return false;
    }
  }
  return !job.out[kX].data || job.out[kX].type == type;
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_vjp(const NormVJPJob& job) {
  if (!suits(job)) {
    return vjp_of_any_rows(job);
  }
  with_flag(job.center, [&](auto center) {
    with_whole_type(job.in[kX].type, [&](auto type) {
      using T = typename decltype(type)::type;
      bool bias = job.bias_gradient.sum;
      if (!job.weight_gradient.sum) {
        vjp_of_all_rows<center.value, T>(job, Flag<false>{}, bias);
      } else if (bias) {
        vjp_of_all_rows<center.value, T>(job, Flag<true>{}, Flag<true>{});
      } else {
        vjp_of_all_rows<center.value, T>(job, Flag<true>{}, Flag<false>{});
      }
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
