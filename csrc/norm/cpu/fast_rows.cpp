// Copyright © 2026 mlx_norms contributors
//
// Rows of x, or of x + residual, that have the result's dtype and no more
// options than a weight and a bias: they are read in place each time they are
// needed. All others are any_rows.cpp's.

#include "csrc/norm/cpu/clamp.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/statistics.h"

namespace {

// The vectors of x + residual, rounded to the sum's dtype.
template <typename T>
struct AddedRow {
  const T* x;
  const T* residual;
  T* sum;
  bool clamp;

  AddedRow(const NormJob& job, int64_t row)
      : x(Row<T>(job.in[kX], row).data),
        residual(Row<T>(job.in[kResidual], row).data),
        sum(static_cast<T*>(job.sum.data) + row * job.width),
        clamp(job.clamp && job.sum.type == Float::f16) {}

  Floats operator()(int64_t i) const {
    Floats v = load(x + i) + load(residual + i);
    return round_to<T>(clamp ? clamp_half(v) : v);
  }
};

// Sums the vectors of x + residual, which are stored and read from there later.
template <bool kCenter, typename T>
inline SummedRow<kCenter, T> sum_added_row(const NormJob& job, int64_t row) {
  AddedRow<T> added(job, row);
  Deviation<kCenter> term{added(0)[0]};
  auto sums = pairwise_sums<1 + kCenter>(job.width, [=](int64_t i) {
    Floats v = added(i);
    store(added.sum + i, v);
    return term(v, i);
  });
  return {{added.sum, job.width}, term.shift, sums};
}

// Normalizes a row and stores the result. Meanwhile it prefetches the rows that
// are read, and stored, `ahead` rows later.
template <typename T, bool kAdds, bool kCenter, typename Early, typename Bias>
inline void store_normalized(
    const NormJob& job,
    int64_t row,
    int64_t ahead,
    Early early,
    Bias bias,
    const T* from,
    Statistics<kCenter> statistics) {
  const float* weight = row_of(job.weight, job, row);
  const float* row_bias = row_of(job.bias, job, row);
  auto* to = static_cast<T*>(job.normalized.data) + row * job.width;
  auto next = row + ahead < job.rows ? ahead * job.width : 0;
  auto coming = row + ahead < job.rows + job.rows_after ? row + ahead : row;
  auto* x = Row<T>(job.in[kX], coming).data;
  auto* residual = Row<T>(job.in[kResidual], coming).data;
  for (int64_t i = 0; i < job.width; i += kWidth) {
    __builtin_prefetch(x + i);
    if (kAdds) {
      __builtin_prefetch(residual + i);
    }
    __builtin_prefetch(to + next + i, 1);
    Floats y = statistics.normalize(load(from + i));
    if (early) {
      y = round_to<T>(y);
    }
    y *= load(weight + i);
    if (bias) {
      y += load(row_bias + i);
    }
    store(to + i, y);
  }
}

// As many rows are computed together as fit in the L1 cache.
constexpr int kMaxRows = 4;

int rows_together(int64_t width) {
  constexpr int64_t kElements = 4096;
  auto fit = kElements / width;
  return fit < 1 ? 1 : fit < kMaxRows ? fit : kMaxRows;
}

// Computes several rows together, so that the end of one row's sums overlaps
// with the arithmetic of other rows.
template <typename T, bool kAdds, bool kCenter, typename Early, typename Bias>
inline void norm_rows(const NormJob& job, Early early, Bias bias) {
  // With a residual one: more than four memory streams are slower.
  int together = kAdds ? 1 : rows_together(job.width);
  SummedRow<kCenter, T> summed[kMaxRows];
  Statistics<kCenter> statistics[kMaxRows];
  for (int64_t first = 0; first < job.rows; first += together) {
    int64_t left = job.rows - first;
    int n = left < together ? left : together;
    for (int i = 0; i < n; ++i) {
      if constexpr (kAdds) {
        summed[i] = sum_added_row<kCenter, T>(job, first + i);
      } else {
        Row<T> x(job.in[kX], first + i);
        summed[i] = sum_row<kCenter>(WholeRow<T>{x.data, job.width});
      }
    }
    for (int i = 0; i < n; ++i) {
      statistics[i] = row_statistics(summed[i], job.root);
    }
    for (int i = 0; i < n; ++i) {
      store_normalized<T, kAdds>(
          job,
          first + i,
          together,
          early,
          bias,
          summed[i].row.data,
          statistics[i]);
    }
  }
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

bool suits(const NormJob& job) {
  for (int i = 0; i < mlx_norms::kOperands; ++i) {
    const auto& rows = job.in[i];
    if (!rows.data) {
      continue;
    }
    bool added = i == kX || i == kResidual;
    if (!added || !are_whole_rows(rows, job.normalized.type, job.width)) {
      return false;
    }
  }
  return !job.has_numbers && job.multiplier == 1.0f &&
      job.activation == mlx_norms::Activation::None;
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm(const NormJob& job) {
  if (!suits(job)) {
    return norm_any_rows(job);
  }
  with_output(job, [&](auto type, auto early, auto bias, auto center) {
    using T = typename decltype(type)::type;
    if (job.in[kResidual].data) {
      norm_rows<T, true, center.value>(job, early, bias);
    } else {
      norm_rows<T, false, center.value>(job, early, bias);
    }
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
