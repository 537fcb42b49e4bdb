// Copyright © 2026 mlx_norms contributors
//
// Rows that are read in place, in their own dtype, each time they are needed.

#include <type_traits>

#include "csrc/norm/cpu/added_row.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/norm_rows.h"
#include "csrc/norm/cpu/statistics.h"
#include "csrc/norm/cpu/store_row.h"

namespace {

// The source of the first sums, if its vectors are not a row yet.
template <typename Source>
struct SourceRow {
  Source source;
  int64_t width;

  template <int K, typename F>
  Sums<K> sums(F term) const {
    return pairwise_sums<K>(width, [source = source, term](int64_t i) {
      return term(source(i, Whole{}), i);
    });
  }
};

// The vectors of (x + residual) + residual2, likewise.
template <typename T>
struct TwiceAddedRow : AddedRow<T, T> {
  Row<T> residual2;

  TwiceAddedRow(const NormJob& job, int64_t row)
      : AddedRow<T, T>(job, row),
        residual2(job.in[kResidual2], row) {}

  template <typename Extent>
  [[gnu::always_inline]] Floats operator()(int64_t i, Extent extent) const {
    Floats v = value(i, extent);
    store(this->sum + i, v, extent);
    return v;
  }

  template <typename Extent>
  [[gnu::always_inline]] Floats value(int64_t i, Extent extent) const {
    Floats first = AddedRow<T, T>::value(i, extent);
    return round_to<T>(first + residual2(i, extent));
  }
};

// Sums the vectors of an added row, which is stored and read from there later.
template <bool kCenter, typename T, typename Added>
inline SummedRow<kCenter, WholeRow<T>> sum_whole_added_row(
    const NormJob& job,
    int64_t row) {
  Added added(job, row);
  float shift = added.value(0, Whole{})[0];
  SourceRow<Added> source{added, job.width};
  return {{added.sum, job.width}, shift, first_sums<kCenter>(source, shift)};
}

int rows_together(int64_t width) {
  constexpr int64_t kElements = 4096;
  auto fit = kElements / width;
  return fit < 1 ? 1 : fit < kMaxRows ? fit : kMaxRows;
}

// Calls f(type, early, bias, center) with types, for which a loop is compiled.
template <typename F>
void with_output(const NormJob& job, F f) {
  with_whole_type(job.normalized.type, [&](auto type) {
    auto with_early = [&](auto early) {
      with_flag(job.bias.data != nullptr, [&](auto bias) {
        with_flag(
            job.center, [&](auto center) { f(type, early, bias, center); });
      });
    };
    if constexpr (std::is_same_v<decltype(type), Type<float>>) {
      with_early(Flag<false>{}); // nothing is rounded, early or late
    } else {
      with_flag(!job.late, with_early);
    }
  });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_whole_rows(const NormJob& job) {
  with_output(job, [&](auto type, auto early, auto bias, auto center) {
    using T = typename decltype(type)::type;
    constexpr bool kCenter = center.value;
    auto norm_added_rows = [&]<typename Added>(Type<Added>) {
      // One row at a time: more than four memory streams are slower.
      norm_rows<T, kCenter, true>(
          job, 1, early, bias, [&](int64_t row, float*) {
            return sum_whole_added_row<kCenter, T, Added>(job, row);
          });
    };
    if (job.in[kResidual2].data) {
      norm_added_rows(Type<TwiceAddedRow<T>>{});
    } else if (job.in[kResidual].data) {
      norm_added_rows(Type<AddedRow<T, T>>{});
    } else {
      norm_rows<T, kCenter, true>(
          job, rows_together(job.width), early, bias, [&](int64_t row, float*) {
            return sum_whole_row<kCenter, T>(job, row);
          });
    }
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
