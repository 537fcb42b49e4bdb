// Copyright © 2026 mlx_norms contributors
//
// Any rows, in float32.

#include "csrc/norm/cpu/added_row.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/modulation.h"
#include "csrc/norm/cpu/norm_rows.h"
#include "csrc/norm/cpu/summed_row.h"

namespace {

// Sums the norm's input: x, or x + residual.
template <bool kCenter>
SummedRow<kCenter> sum_input(const NormJob& job, int64_t row, float* scratch) {
  if (!job.in[kResidual].data) {
    return sum_row<kCenter>(job.in[kX], row, job.width, scratch);
  }
  SummedRow<kCenter> summed;
  with_added_row(job, [&]<typename Added>(Type<Added>) {
    Added source(job, row);
    summed = sum_source<kCenter>(source, job.width, scratch);
  });
  return summed;
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

// For any rows, in float32.
void norm_other_rows(const NormJob& job) {
  with_type(job.normalized.type, [&](auto type) {
    with_flag(job.center, [&](auto center) {
      norm_rows<typename decltype(type)::type, center.value, false>(
          job,
          1,
          !job.late,
          job.bias.data != nullptr,
          [&](int64_t row, float* scratch) {
            return sum_input<center.value>(job, row, scratch);
          });
    });
  });
}

// For rows with a scale, shift, multiplier, factor or second residual: in
// place, or in float32.
void norm_modulated_rows(const NormJob& job) {
  Modulation modulation(job);
  if (!is_factored(job) && !job.in[kResidual].data && are_whole_rows(job)) {
    return with_whole_type(job.normalized.type, [&](auto type) {
      using T = typename decltype(type)::type;
      with_flag(job.center, [&](auto center) {
        norm_rows<T, center.value, true>(
            job,
            1,
            !job.late,
            job.bias.data != nullptr,
            [&](int64_t row, float*) {
              return sum_whole_row<center.value, T>(job, row);
            },
            [&](int64_t row) { return modulation.template of_row<T>(row); });
      });
    });
  }
  with_type(job.normalized.type, [&](auto type) {
    using T = typename decltype(type)::type;
    with_flag(job.center, [&](auto center) {
      for (int64_t row = 0; row < job.rows; ++row) {
        SummedRow<center.value> summed;
        if (is_summed_before(job)) {
          modulation.load_factor(row);
          add_factored_row(job, row);
          summed = sum_row<center.value>(
              stored_sums(job), row, job.width, job.scratch);
        } else {
          summed = sum_input<center.value>(job, row, job.scratch);
        }
        auto statistics = row_statistics<center.value>(summed, job.root);
        store_row<T, false>(
            job,
            row,
            0,
            !job.late,
            job.bias.data != nullptr,
            [v = summed.row.data, statistics](int64_t i) {
              return statistics.normalize(load(v + i));
            },
            modulation.of_row<T>(row));
      }
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
