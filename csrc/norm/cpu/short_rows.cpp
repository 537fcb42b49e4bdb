// Copyright © 2026 mlx_norms contributors
//
// Rows that fit in one vector go through each step together, in a loop compiled
// for it: calls per row would cost more than a row's arithmetic.

#include <optional>

#include "csrc/norm/cpu/added_row.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/modulation.h"
#include "csrc/norm/cpu/statistics.h"
#include "csrc/norm/cpu/store_row.h"

namespace {

// A row that fits in one vector. Its sums are bit-identical to FloatRow's,
// whose other lanes are zeros.
struct ShortRow {
  Floats v;
  int64_t width;

  void pad(float value) {
    v = replace_from(v, width, value);
  }

  template <int K, typename F>
  Sums<K> sums(F term) const {
    Sums<K> sums;
    auto terms = term(v, 0);
    for (int k = 0; k < K; ++k) {
      sums.v[k] = sum_vector(terms.v[k] + splat(0.0f));
    }
    return sums;
  }
};

constexpr int kShortRows = 32;

// Loads n of these rows, starting at `first`.
void load_short_rows(
    const RowsIn& rows,
    int64_t width,
    int64_t first,
    int n,
    Floats* v) {
  with_type(rows.type, [&](auto type) {
    for (int i = 0; i < n; ++i) {
      Row<typename decltype(type)::type> row(rows, first + i);
      for_vectors(
          width, [&](int64_t j, auto extent) { v[i] = row(j, extent); });
    }
  });
}

// Loads n rows of the norm's input.
void load_short_input(const NormJob& job, int64_t first, int n, Floats* v) {
  if (!job.in[kResidual].data) {
    return load_short_rows(job.in[kX], job.width, first, n, v);
  }
  with_added_row(job, [&]<typename Added>(Type<Added>) {
    for (int i = 0; i < n; ++i) {
      Added sum(job, first + i);
      for_vectors(
          job.width, [&](int64_t j, auto extent) { v[i] = sum(j, extent); });
    }
  });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm_short_rows(const NormJob& job) {
  Floats v[kShortRows];
  std::optional<Modulation> modulation;
  if (is_modulated(job) || is_summed_before(job)) {
    modulation.emplace(job);
  }
  for (int64_t first = 0; first < job.rows; first += kShortRows) {
    int64_t left = job.rows - first;
    int n = left < kShortRows ? left : kShortRows;
    if (is_summed_before(job)) {
      for (int i = 0; i < n; ++i) {
        modulation->load_factor(first + i);
        add_factored_row(job, first + i);
      }
      load_short_rows(stored_sums(job), job.width, first, n, v);
    } else {
      load_short_input(job, first, n, v);
    }
    with_flag(job.center, [&](auto center) {
      for (int i = 0; i < n; ++i) {
        ShortRow row{v[i], job.width};
        float shift = center.value ? row.v[0] : 0.0f;
        row.pad(shift);
        SummedRow<center.value, ShortRow> summed{
            row, shift, first_sums<center.value>(row, shift)};
        auto s = row_statistics(summed, job.root);
        v[i] = s.normalize(v[i]);
      }
    });
    with_type(job.normalized.type, [&](auto type) {
      using T = typename decltype(type)::type;
      for (int i = 0; i < n; ++i) {
        auto store = [&](auto after) {
          store_row<T, false>(
              job,
              first + i,
              0,
              !job.late,
              job.bias.data != nullptr,
              [n = v[i]](int64_t) { return n; },
              after);
        };
        if (is_modulated(job)) {
          store(modulation->of_row<T>(first + i));
        } else {
          store(Unchanged{});
        }
      }
    });
  }
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
