// Copyright © 2026 mlx_norms contributors
//
// A row that is converted to float32 while its first sums are taken.

#pragma once

#include "csrc/norm/cpu/statistics.h"

namespace {

// Not inlined: one for all sources.
template <int K, typename F>
[[gnu::noinline]] Sums<K> sums_of_stored(FloatRow row, F term) {
  return row.sums<K>(term);
}

// A row that is converted to float32 by its first sums: they store the vectors
// of source(i, extent) in `row`, and `padding` past its end.
template <typename Source>
struct FreshRow {
  Source source;
  float* to;
  FloatRow row;
  float padding;

  FreshRow(Source source, float* to, int64_t width, float padding)
      : source(source),
        to(to),
        row{to, width == padded(width) ? nullptr : to, width},
        padding(padding) {}

  template <int K, typename F>
  Sums<K> sums(F term) const {
    auto [source, to, row, padding] = *this;
    if (!row.padded) {
      return pairwise_sums<K>(row.width, [source, to, term](int64_t i) {
        Floats v = source(i, Whole{});
        store(to + i, v);
        return term(v, i);
      });
    }
    for_vectors(row.width, [source, to](int64_t i, auto extent) {
      store(to + i, source(i, extent));
    });
    row.pad(padding);
    return sums_of_stored<K>(row, term);
  }
};

template <bool kCenter, typename Source>
SummedRow<kCenter> sum_source(Source source, int64_t width, float* scratch) {
  float shift = kCenter ? source.value(0, Whole{})[0] : 0.0f;
  FreshRow<Source> fresh(source, scratch, width, shift);
  return {fresh.row, shift, first_sums<kCenter>(fresh, shift)};
}

template <bool kCenter>
SummedRow<kCenter>
sum_row(const RowsIn& rows, int64_t row, int64_t width, float* scratch) {
  if (is_float_row(rows, width)) {
    auto v = float_row(rows, row, width);
    return {v, v.data[0], first_sums<kCenter>(v, v.data[0])};
  }
  SummedRow<kCenter> summed;
  with_type(rows.type, [&](auto type) {
    Row<typename decltype(type)::type> source(rows, row);
    summed = sum_source<kCenter>(source, width, scratch);
  });
  return summed;
}

} // namespace
