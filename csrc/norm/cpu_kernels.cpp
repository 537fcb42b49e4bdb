// Copyright © 2026 mlx_norms contributors
//
// The norms on rows, compiled once per instruction set (MLX_NORMS_KERNELS is
// its table). A row is loaded from memory once and then read from the cache.
// Sums are taken in one order and contraction is off, so every instruction
// set's are bit-identical.

#include "csrc/norm/cpu_kernels.h"

#include <optional>
#include <type_traits>

#include "csrc/common/float16.h"
#include "csrc/cpu/activations.h"
#include "csrc/cpu/pairwise_sum.h"
#include "csrc/cpu/simd.h"
#include "csrc/norm/channels/cpu_columns.h"
#include "csrc/norm/cpu_types.h"

namespace {

using namespace mlx_norms::cpu;

// The number of rows whose parameter gradients are added up before they are
// added to the compensated sum.
constexpr int kPartialRows = 4;

// The dtype of x + residual.
template <typename X, typename R>
struct Promote {
  using type = float;
};
template <typename X>
struct Promote<X, X> {
  using type = X;
};

// An input row.
template <typename T>
struct Row {
  const T* data;
  int64_t step;

  Row(const RowsIn& rows, int64_t row)
      : data(static_cast<const T*>(rows.data) + row * rows.row_stride),
        step(rows.step) {}

  template <typename Extent>
  [[gnu::always_inline]] Floats operator()(int64_t i, Extent extent) const {
    return step == 1 ? load(data + i, extent) : gather(i, extent);
  }
  Floats value(int64_t i, Whole extent) const {
    return (*this)(i, extent);
  }

 private:
  [[gnu::always_inline]] Floats gather(int64_t i, Whole) const {
    return gather(i, Part{kWidth});
  }
  // Not inlined: it would keep the loops from being compiled well.
  [[gnu::noinline]] Floats gather(int64_t i, Part part) const {
    T lanes[kWidth] = {};
    for (int j = 0; j < part.n; ++j) {
      lanes[j] = data[(i + j) * step];
    }
    return load(lanes);
  }
};

// A row in float32, padded to a multiple of kRowMultiple.
struct FloatRow {
  using Element = float;

  const float* data;
  float* padded; // the same row; null if it needs no padding
  int64_t width;

  // Sets every lane past the row's end to value.
  void pad(float value) const {
    if (!padded) {
      return;
    }
    int64_t i = width / kWidth * kWidth;
    store(padded + i, replace_from(load(padded + i), width - i, value));
    for (i += kWidth; i < mlx_norms::cpu::padded(width); i += kWidth) {
      store(padded + i, splat(value));
    }
  }

  // K sums of term(v, i) over the row's vectors v, which start at element i.
  template <int K, typename F>
  Sums<K> sums(F term) const {
    auto* row = data;
    return pairwise_sums<K>(mlx_norms::cpu::padded(width), [=](int64_t i) {
      return term(load(row + i), i);
    });
  }
};

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

FloatRow padded_row(float* row, int64_t width) {
  FloatRow padded_row{row, width == padded(width) ? nullptr : row, width};
  padded_row.pad(0.0f);
  return padded_row;
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
    return row.template sums<K>(term);
  }
};

// Whether a row can be read in place: it is in float32 and needs no padding.
bool is_float_row(const RowsIn& rows, int64_t width) {
  return rows.type == Float::f32 && rows.step == 1 && width == padded(width);
}

FloatRow float_row(const RowsIn& rows, int64_t row, int64_t width) {
  auto* data = static_cast<const float*>(rows.data) + row * rows.row_stride;
  return {data, nullptr, width};
}

// The row itself if it can be read in place, else a copy.
FloatRow
load_row(const RowsIn& rows, int64_t row, int64_t width, float* scratch) {
  if (is_float_row(rows, width)) {
    return float_row(rows, row, width);
  }
  with_type(rows.type, [&](auto type) {
    Row<typename decltype(type)::type> from(rows, row);
    for_vectors(width, [=](int64_t i, auto extent) {
      store(scratch + i, from(i, extent));
    });
  });
  return padded_row(scratch, width);
}

// Lanes beyond +-65504 saturate, inf too; NaN stays NaN.
inline Floats clamp_half(Floats v) {
  Floats below = v > kFloat16Max ? splat(kFloat16Max) : v;
  return below < -kFloat16Max ? splat(-kFloat16Max) : below;
}

// The factor of a row of x, in float32.
inline const float* factor_of(const NormJob& job) {
  return job.scratch + 3 * padded(job.width);
}

// The vectors of x + residual, rounded to the sum's dtype and stored.
template <typename X, typename R, typename Sum = typename Promote<X, R>::type>
struct AddedRow {
  using S = Sum;
  Row<X> x;
  Row<R> residual;
  S* sum;
  bool clamp;

  AddedRow(const NormJob& job, int64_t row)
      : x(job.x, row),
        residual(job.residual, row),
        sum(static_cast<S*>(job.sum.data) + row * job.width),
        clamp(job.clamp && job.sum.type == Float::f16) {}

  template <typename Extent>
  [[gnu::always_inline]] Floats operator()(int64_t i, Extent extent) const {
    Floats v = value(i, extent);
    store(sum + i, v, extent);
    return v;
  }

  // Without the store, which may overwrite x or the residual.
  template <typename Extent>
  [[gnu::always_inline]] Floats value(int64_t i, Extent extent) const {
    return rounded(x(i, extent) + residual(i, extent));
  }

  [[gnu::always_inline]] Floats rounded(Floats v) const {
    return round_to<S>(clamp ? clamp_half(v) : v);
  }
};

// Calls f(type), with the type of a job's AddedRow. The sum has another dtype
// than the one both promote to if x was normalized in float32.
template <typename F>
void with_added_row(const NormJob& job, F f) {
  with_type(job.x.type, [&]<typename X>(Type<X>) {
    with_type(job.residual.type, [&]<typename R>(Type<R>) {
      if constexpr (std::is_same_v<X, float> && !std::is_same_v<R, float>) {
        if (job.sum.type == job.residual.type) {
          return f(Type<AddedRow<X, R, R>>{});
        }
      }
      f(Type<AddedRow<X, R>>{});
    });
  });
}

// Stores the sum of a row and its factor's products, or the product of both.
void add_factored_row(const NormJob& job, int64_t row) {
  auto* factor = factor_of(job);
  with_type(job.x.type, [&](auto x) {
    using X = typename decltype(x)::type;
    with_type(job.residual.type, [&](auto residual) {
      AddedRow<X, typename decltype(residual)::type> to(job, row);
      bool rounds = job.round_factored;
      if (job.factor_of_sum) {
        for_vectors(job.width, [=](int64_t i, auto extent) {
          Floats v = to.value(i, extent) * load(factor + i);
          store(to.sum + i, to.rounded(v), extent);
        });
        return;
      }
      for_vectors(job.width, [=](int64_t i, auto extent) {
        Floats v = to.x(i, extent) * load(factor + i);
        v = (rounds ? round_to<X>(v) : v) + to.residual(i, extent);
        store(to.sum + i, to.rounded(v), extent);
      });
    });
  });
}

template <bool kCenter>
struct Statistics {
  float mean;
  float correction; // the mean deviation from `mean`
  float rstd;

  Floats normalize(Floats v) const {
    return kCenter ? (v - mean - correction) * rstd : v * rstd;
  }
};

// Sums of the squared deviations from `shift` and of the deviations; without
// center, of the squares.
template <bool kCenter, typename AnyRow>
inline Sums<1 + kCenter> first_sums(const AnyRow& row, float shift) {
  return row.template sums<1 + kCenter>([shift](Floats v, int64_t) {
    if constexpr (kCenter) {
      Floats d = v - shift;
      return Term<2>{d * d, d};
    } else {
      return Term<1>{v * v};
    }
  });
}

// A row in float32 and its first sums, of deviations from one of its elements.
template <bool kCenter, typename AnyRow = FloatRow>
struct SummedRow {
  AnyRow row;
  float shift;
  Sums<1 + kCenter> sums;
};

// False for NaN, too.
inline bool is_finite(float v) {
  return __builtin_fabsf(v) <= __FLT_MAX__;
}

// What sums over a row are divided by.
inline float divisor(Root root, int64_t width) {
  return root.l2 ? 1.0f : width;
}

// The factor of a row whose squares have this mean or, for l2, sum.
inline float inverse_root(Root root, float square) {
  if (!root.eps_bounds) {
    return 1.0f / __builtin_sqrtf(square + root.eps);
  }
  float v = __builtin_sqrtf(square);
  return 1.0f / (v < root.eps ? root.eps : v);
}

// The mean is the shift plus the mean deviation from it.
template <bool kCenter, typename AnyRow>
inline Statistics<kCenter> row_statistics(
    const SummedRow<kCenter, AnyRow>& summed,
    Root root) {
  auto row = summed.row;
  auto width = row.width;
  Statistics<kCenter> s = {};
  float variance = summed.sums.v[0] / divisor(root, width);
  if constexpr (kCenter) {
    s.mean = summed.shift;
    s.correction = summed.sums.v[1] / width;
    float square = s.correction * s.correction;
    variance -= square;
    if (variance * 8 < square || !is_finite(variance)) {
      // The shift was far from the mean: the difference is mostly rounding
      // error, or the squares are beyond float32. The mean is right and becomes
      // the shift.
      s.mean += s.correction;
      row.pad(s.mean); // no deviation past the row's end
      auto sums = first_sums<true>(row, s.mean);
      s.correction = sums.v[1] / width;
      variance = sums.v[0] / width - s.correction * s.correction;
      if (!is_finite(variance)) {
        variance = __builtin_nanf(""); // inf would make the row zeros
      }
    }
  }
  s.rstd = inverse_root(root, variance);
  return s;
}

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

// Sums the norm's input: x, or x + residual.
template <bool kCenter>
SummedRow<kCenter> sum_input(const NormJob& job, int64_t row, float* scratch) {
  if (!job.residual.data) {
    return sum_row<kCenter>(job.x, row, job.width, scratch);
  }
  SummedRow<kCenter> summed;
  with_added_row(job, [&]<typename Added>(Type<Added>) {
    Added source(job, row);
    summed = sum_source<kCenter>(source, job.width, scratch);
  });
  return summed;
}

// The offset of the weight for a job's row, or of its gradient.
template <typename Job>
int64_t weight_offset(const Job& job, int64_t row) {
  auto rows = job.weight.rows;
  return (rows == 1 ? 0 : (job.first_row + row) % rows) * padded(job.width);
}

// The row of x or of the residual that is read `ahead` rows later.
const char*
coming_row(const RowsIn& rows, int64_t row, int64_t ahead, int64_t end) {
  if (!rows.data) {
    return nullptr;
  }
  auto coming = row + ahead < end ? row + ahead : row;
  int size = rows.type == Float::f32 ? 4 : 2;
  return static_cast<const char*>(rows.data) + coming * rows.row_stride * size;
}

// What is done to the result y of a row, whose vector starts at element i.
struct Unchanged {
  Floats operator()(Floats y, int64_t) const {
    return y;
  }
};

// y * (1 + scale) + shift. Rounding early, each step rounds where one of MLX's
// ops would.
template <typename T>
struct Modulated {
  const float* factor; // padded rows
  const float* shift;
  bool rounds;
  bool round_product;

  Floats operator()(Floats y, int64_t i) const {
    if (rounds) {
      y = round_to<T>(y);
    }
    y *= load(factor + i);
    if (round_product) {
      y = round_to<T>(y);
    }
    return y + load(shift + i);
  }
};

bool is_factored(const NormJob& job) {
  return job.factor.data || job.number != 1.0f;
}

// The modulation and the factor of a job's rows, of which several may share
// one.
class Modulation {
 public:
  explicit Modulation(const NormJob& job)
      : job_(job),
        factor_(job.scratch + padded(job.width)),
        shift_(factor_ + padded(job.width)),
        factor_of_x_(shift_ + padded(job.width)) {
    fill(factor_, splat(1.0f));
    fill(shift_, -Floats{}); // minus zeros, which change nothing
    fill(factor_of_x_, splat(job.number));
  }

  // Before a row is read.
  void load_factor(int64_t row) {
    if (job_.factor.data) {
      load_once(
          job_.factor, row, factor_row_, factor_of_x_, [](auto, Floats v) {
            return v;
          });
    }
  }

  template <typename T>
  Modulated<T> of_row(int64_t row) {
    if (job_.scale.data) {
      load_once(job_.scale, row, scale_row_, factor_, [&](auto type, Floats v) {
        using S = typename decltype(type)::type;
        v = v + splat(1.0f);
        return job_.late ? v : round_to<S>(v);
      });
    }
    if (job_.shift.data) {
      load_once(job_.shift, row, shift_row_, shift_, [](auto, Floats v) {
        return v;
      });
    }
    return {factor_, shift_, !job_.late, job_.round_product};
  }

 private:
  void fill(float* to, Floats value) const {
    for (int64_t i = 0; i < job_.width; i += kWidth) {
      store(to + i, value);
    }
  }

  // Loads f(type, v) of a row's vectors v, unless it was the last one.
  template <typename F>
  void load_once(const RowsIn& rows, int64_t row, int64_t& last, float* to, F f)
      const {
    auto at = row * rows.row_stride;
    if (at == last) {
      return;
    }
    last = at;
    with_type(rows.type, [&](auto type) {
      Row<typename decltype(type)::type> from(rows, row);
      for_vectors(job_.width, [=](int64_t i, auto extent) {
        store(to + i, f(type, from(i, extent)));
      });
    });
  }

  const NormJob& job_;
  float* factor_;
  float* shift_;
  float* factor_of_x_;
  int64_t factor_row_ = -1;
  int64_t scale_row_ = -1;
  int64_t shift_row_ = -1;
};

// Stores a row, whose normalized vectors n(i) returns. With kFetch, for inputs
// of dtype T, a later row is prefetched while this one is computed.
template <
    typename T,
    bool kFetch,
    typename Early,
    typename Bias,
    typename F,
    typename After = Unchanged>
inline void store_row(
    const NormJob& job,
    int64_t row,
    int64_t ahead,
    Early early,
    Bias bias,
    F n,
    After after = {}) {
  const float* weight = job.weight.data + weight_offset(job, row);
  const float* row_bias = job.bias;
  auto* to = static_cast<T*>(job.normalized.data) + row * job.width;
  auto end = job.rows + job.rows_after;
  auto* x = coming_row(job.x, row, ahead, end);
  auto* residual = coming_row(job.residual, row, ahead, end);
  for_vectors(job.width, [=](int64_t i, auto extent) {
    if (kFetch) {
      __builtin_prefetch(x + i * sizeof(T));
      if (residual) {
        __builtin_prefetch(residual + i * sizeof(T));
      }
    }
    Floats y = n(i);
    if (early) {
      y = round_to<T>(y);
    }
    y *= load(weight + i);
    if (bias) {
      y += load(row_bias + i);
    }
    store(to + i, after(y, i), extent);
  });
}

// Rows that fit in one vector go through each step together, in a loop compiled
// for it: calls per row would cost more than a row's arithmetic.
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
  if (!job.residual.data) {
    return load_short_rows(job.x, job.width, first, n, v);
  }
  with_added_row(job, [&]<typename Added>(Type<Added>) {
    for (int i = 0; i < n; ++i) {
      Added sum(job, first + i);
      for_vectors(
          job.width, [&](int64_t j, auto extent) { v[i] = sum(j, extent); });
    }
  });
}

// The rows that add_factored_row() stored.
RowsIn stored_sums(const NormJob& job) {
  return {job.sum.data, job.sum.type, job.width};
}

bool is_modulated(const NormJob& job) {
  return job.scale.data || job.shift.data;
}

void norm_short_rows(const NormJob& job) {
  Floats v[kShortRows];
  std::optional<Modulation> modulation;
  if (is_modulated(job) || is_factored(job)) {
    modulation.emplace(job);
  }
  for (int64_t first = 0; first < job.rows; first += kShortRows) {
    int64_t left = job.rows - first;
    int n = left < kShortRows ? left : kShortRows;
    if (is_factored(job)) {
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
              job.bias != nullptr,
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

// A row that is read in place, in its own dtype, and needs no padding.
template <typename T>
struct WholeRow {
  using Element = T;

  const T* data;
  int64_t width;

  void pad(float) const {}

  template <int K, typename F>
  Sums<K> sums(F term) const {
    return pairwise_sums<K>(width, [row = data, term](int64_t i) {
      return term(load(row + i), i);
    });
  }
};

// Whether rows of this width can be read in place each time they are needed.
bool are_whole_rows(const RowsIn& rows, int64_t width) {
  return (kConvertsFast || rows.type == Float::f32) && rows.step == 1 &&
      width == padded(width);
}

bool are_whole_rows(const NormJob& job) {
  auto whole = [&](const RowsIn& rows) {
    return rows.type == job.normalized.type && are_whole_rows(rows, job.width);
  };
  return whole(job.x) && (!job.residual.data || whole(job.residual));
}

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

template <bool kCenter, typename T>
inline SummedRow<kCenter, WholeRow<T>> sum_whole_row(
    const NormJob& job,
    int64_t row) {
  auto* data = static_cast<const T*>(job.x.data) + row * job.x.row_stride;
  WholeRow<T> whole{data, job.width};
  float shift = load(data)[0];
  return {whole, shift, first_sums<kCenter>(whole, shift)};
}

// Sums x + residual, which is stored and read from there later.
template <bool kCenter, typename T>
inline SummedRow<kCenter, WholeRow<T>> sum_whole_added_row(
    const NormJob& job,
    int64_t row) {
  AddedRow<T, T> added(job, row);
  float shift = added.value(0, Whole{})[0];
  SourceRow<AddedRow<T, T>> source{added, job.width};
  return {{added.sum, job.width}, shift, first_sums<kCenter>(source, shift)};
}

// As many rows are computed together as fit in the L1 cache.
constexpr int kMostRows = 4;

int rows_together(int64_t width) {
  constexpr int64_t kElements = 4096;
  auto fit = kElements / width;
  return fit < 1 ? 1 : fit < kMostRows ? fit : kMostRows;
}

// Computes several rows together, so that the end of one row's sums overlaps
// with the arithmetic of other rows. sum(row, scratch) returns a SummedRow.
template <
    typename T,
    bool kCenter,
    bool kFetch,
    typename Early,
    typename Bias,
    typename F>
inline void
norm_rows(const NormJob& job, int together, Early early, Bias bias, F sum) {
  decltype(sum(0, nullptr)) summed[kMostRows];
  Statistics<kCenter> statistics[kMostRows];
  for (int64_t first = 0; first < job.rows; first += together) {
    int64_t left = job.rows - first;
    int n = left < together ? left : together;
    for (int i = 0; i < n; ++i) {
      summed[i] = sum(first + i, job.scratch);
    }
    for (int i = 0; i < n; ++i) {
      statistics[i] = row_statistics<kCenter>(summed[i], job.root);
    }
    for (int i = 0; i < n; ++i) {
      store_row<T, kFetch>(
          job,
          first + i,
          together,
          early,
          bias,
          [v = summed[i].row.data, s = statistics[i]](int64_t j) {
            return s.normalize(load(v + j));
          });
    }
  }
}

// Calls f(type, early, bias, center) with types, for which a loop is compiled.
template <typename F>
void with_output(const NormJob& job, F f) {
  with_type(job.normalized.type, [&](auto type) {
    auto with_early = [&](auto early) {
      with_flag(job.bias != nullptr, [&](auto bias) {
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

// For any rows, in float32.
void norm_other_rows(const NormJob& job) {
  with_type(job.normalized.type, [&](auto type) {
    with_flag(job.center, [&](auto center) {
      norm_rows<typename decltype(type)::type, center.value, false>(
          job,
          1,
          !job.late,
          job.bias != nullptr,
          [&](int64_t row, float* scratch) {
            return sum_input<center.value>(job, row, scratch);
          });
    });
  });
}

// For rows with a scale, shift or factor, in float32.
void norm_modulated_rows(const NormJob& job) {
  Modulation modulation(job);
  with_type(job.normalized.type, [&](auto type) {
    using T = typename decltype(type)::type;
    with_flag(job.center, [&](auto center) {
      for (int64_t row = 0; row < job.rows; ++row) {
        SummedRow<center.value> summed;
        if (is_factored(job)) {
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
            job.bias != nullptr,
            [v = summed.row.data, statistics](int64_t i) {
              return statistics.normalize(load(v + i));
            },
            modulation.of_row<T>(row));
      }
    });
  });
}

// Stores a row of the gate, activated, in float32; rounding early, each step
// rounds to its dtype.
void load_gate(const NormJob& job, int64_t row, float* to) {
  with_type(job.gate.type, [&](auto type) {
    using T = typename decltype(type)::type;
    Row<T> gate(job.gate, row);
    with_activation(job.activation, [&](auto activation) {
      constexpr auto kActivation = decltype(activation)::value;
      auto load_rounded = [&](auto rounds) {
        using R = std::conditional_t<rounds.value, T, float>;
        for_vectors(job.width, [=](int64_t i, auto extent) {
          store(to + i, activated<kActivation, R>(gate(i, extent)));
        });
      };
      if constexpr (std::is_same_v<T, float>) {
        load_rounded(Flag<false>{});
      } else {
        with_flag(!job.late, load_rounded);
      }
    });
  });
}

// Multiplies a row of x by one of its gate, which load_gate() stored.
FloatRow gate_row(const NormJob& job, int64_t row, const float* gate) {
  auto* to = job.scratch;
  with_type(job.x.type, [&](auto type) {
    using X = typename decltype(type)::type;
    Row<X> x(job.x, row);
    bool rounds = job.round_gated;
    for_vectors(job.width, [=](int64_t i, auto extent) {
      Floats v = x(i, extent) * load(gate + i);
      store(to + i, rounds ? round_to<X>(v) : v);
    });
  });
  return padded_row(to, job.width);
}

// The result y times a row of the gate.
template <typename T>
struct Gated {
  const float* gate;
  bool rounds;

  Floats operator()(Floats y, int64_t i) const {
    return (rounds ? round_to<T>(y) : y) * load(gate + i);
  }
};

// The result y, activated.
template <typename T, Activation kActivation>
struct Activated {
  bool rounds;

  Floats operator()(Floats y, int64_t) const {
    return rounds ? activated<kActivation, T>(round_to<T>(y))
                  : activated<kActivation, float>(y);
  }
};

bool is_gated(const NormJob& job) {
  return job.gate.data || job.activation != Activation::None;
}

// For rows with a gate or an activation, in float32.
void norm_gated_rows(const NormJob& job) {
  auto* gate = job.scratch + padded(job.width);
  auto rounds = !job.late;
  with_type(job.normalized.type, [&](auto type) {
    using T = typename decltype(type)::type;
    for (int64_t row = 0; row < job.rows; ++row) {
      if (job.gate.data) {
        load_gate(job, row, gate);
      }
      SummedRow<false> summed;
      if (job.gate_first) {
        auto v = gate_row(job, row, gate);
        summed = {v, 0.0f, first_sums<false>(v, 0.0f)};
      } else {
        summed = sum_row<false>(job.x, row, job.width, job.scratch);
      }
      auto statistics = row_statistics(summed, job.root);
      auto store = [&](auto after) {
        store_row<T, false>(
            job,
            row,
            0,
            rounds,
            false,
            [v = summed.row.data, statistics](int64_t i) {
              return statistics.normalize(load(v + i));
            },
            after);
      };
      if (job.gate_first) {
        store(Unchanged{});
      } else if (job.gate.data) {
        store(Gated<T>{gate, rounds});
      } else {
        with_activation(job.activation, [&](auto activation) {
          store(Activated<T, decltype(activation)::value>{rounds});
        });
      }
    }
  });
}

void norm(const NormJob& job) {
  if (is_gated(job)) {
    return norm_gated_rows(job);
  }
  if (job.width <= kWidth) {
    return norm_short_rows(job);
  }
  if (is_modulated(job) || is_factored(job)) {
    return norm_modulated_rows(job);
  }
  if (!are_whole_rows(job)) {
    return norm_other_rows(job);
  }
  with_output(job, [&](auto type, auto early, auto bias, auto center) {
    using T = typename decltype(type)::type;
    constexpr bool kCenter = center.value;
    if (job.residual.data) {
      // One row at a time: more than four memory streams are slower.
      norm_rows<T, kCenter, true>(
          job, 1, early, bias, [&](int64_t row, float*) {
            return sum_whole_added_row<kCenter, T>(job, row);
          });
    } else {
      norm_rows<T, kCenter, true>(
          job, rows_together(job.width), early, bias, [&](int64_t row, float*) {
            return sum_whole_row<kCenter, T>(job, row);
          });
    }
  });
}

inline void add_compensated(CompensatedSum to, int64_t i, Floats v) {
  Floats sum = load(to.sum + i);
  Floats y = v - load(to.error + i);
  Floats next = sum + y;
  Floats error = (next - sum) - y;
  // For an infinite sum the error is NaN, which must not spread.
  store(to.error + i, error == error ? error : Floats{});
  store(to.sum + i, next);
}

// Adds the sums of the latest rows to the compensated sums, and clears them.
void add_partial(CompensatedSum to, int64_t size) {
  for (int64_t i = 0; i < size; i += kWidth) {
    add_compensated(to, i, load(to.partial + i));
    store(to.partial + i, Floats{});
  }
}

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

// Takes all sums in one pass; those with the cotangent are of deviations, too.
template <bool kCenter, typename AnyRow, typename G>
inline void measure_vjp_row(
    VJPRow<kCenter, typename AnyRow::Element, G>& to,
    AnyRow row,
    const float* weight,
    Root root) {
  auto* cotangent = to.cotangent;
  float width = divisor(root, row.width);
  float shift = kCenter ? float(load(row.data)[0]) : 0.0f;
  if constexpr (kCenter) {
    auto sums = row.template sums<4>([=](Floats v, int64_t i) {
      Floats d = v - shift;
      Floats wg = load(cotangent + i) * load(weight + i);
      return Term<4>{d * d, d, wg * d, wg};
    });
    SummedRow<true, AnyRow> summed{row, shift, {sums.v[0], sums.v[1]}};
    auto s = to.statistics = row_statistics(summed, root);
    to.mean_wg = sums.v[3] / width;
    to.mean_wgn = (sums.v[2] / width - s.correction * to.mean_wg) * s.rstd;
  } else {
    auto sums = row.template sums<2>([=](Floats v, int64_t i) {
      Floats wg = load(cotangent + i) * load(weight + i);
      return Term<2>{v * v, wg * v};
    });
    SummedRow<false, AnyRow> summed{row, 0.0f, {sums.v[0]}};
    to.statistics = row_statistics(summed, root);
    to.mean_wgn = sums.v[1] / width * to.statistics.rstd;
    to.mean_wg = 0.0f;
  }
  if (to.statistics.mean != shift || !is_finite(to.mean_wgn)) {
    // The sum with the cotangent was of other deviations, or beyond float32.
    auto of_normalized =
        row.template sums<1>([=, s = to.statistics](Floats v, int64_t i) {
          Floats wg = load(cotangent + i) * load(weight + i);
          return Term<1>{wg * s.normalize(v)};
        });
    to.mean_wgn = of_normalized.v[0] / width;
  }
  if (root.eps_bounds && to.statistics.rstd >= 1.0f / root.eps) {
    to.mean_wgn = 0.0f; // a constant factor
  }
}

template <bool kCenter, typename To, typename AnyRow>
inline void measure(To& to, AnyRow s, const NormVJPJob& job, int64_t row) {
  if (job.identity) {
    return;
  }
  auto* weight = job.weight.data + weight_offset(job, row);
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
  bool clamp = job.clamp && job.s.type == Float::f16;
  bool identity = job.identity;
  auto width = job.width;
  auto* to = static_cast<O*>(job.input.data);
  to = to ? to + row * width : nullptr;
  constexpr bool kAll = kRows == kPartialRows;
  // The number of rows to the next ones; 0 if there are none.
  int64_t ahead = row + 2 * kRows <= job.rows ? kRows : 0;
  auto ahead_s = ahead * job.s.row_stride;
  auto ahead_cotangent = ahead * job.cotangent.row_stride;

  for_vectors(width, [=](int64_t i, auto extent) {
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
      if (kWhole) {
        __builtin_prefetch(each.s + ahead_s + i);
        __builtin_prefetch(each.cotangent + ahead_cotangent + i);
        if (to) {
          __builtin_prefetch(to + (ahead + r) * width + i, 1);
        }
      }
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
  });
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
    return rows.type == job.s.type && are_whole_rows(rows, job.width);
  };
  return whole(job.s) && whole(job.cotangent) &&
      (!job.sum_cotangent.data || whole(job.sum_cotangent)) &&
      (!job.input.data || job.input.type == job.s.type);
}

template <typename T, bool kCenter, typename WeightSum, typename BiasSum>
void vjp_of_whole_rows(
    const NormVJPJob& job,
    WeightSum wants_weight,
    BiasSum wants_bias) {
  auto at = [](const RowsIn& rows, int64_t row) {
    return static_cast<const T*>(rows.data) + row * rows.row_stride;
  };
  norm_vjp_rows<T, kCenter, true>(
      job, wants_weight, wants_bias, [&](int64_t row) {
        VJPRow<kCenter, T, T> to{
            at(job.s, row), at(job.cotangent, row), nullptr, {}, 0, 0};
        if (job.sum_cotangent.data) {
          to.sum_cotangent = at(job.sum_cotangent, row);
        }
        WholeRow<T> s{to.s, job.width};
        measure<kCenter>(to, s, job, row);
        return to;
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
        auto s = load_row(job.s, row, width, scratch);
        auto g = load_row(job.cotangent, row, width, scratch += padded(width));
        VJPRow<kCenter, float, float> to{s.data, g.data, nullptr, {}, 0, 0};
        if (job.sum_cotangent.data) {
          scratch += padded(width);
          to.sum_cotangent =
              load_row(job.sum_cotangent, row, width, scratch).data;
        }
        if (kCenter) {
          s.pad(load(s.data)[0]); // no deviation past the row's end
        }
        measure<kCenter>(to, s, job, row);
        return to;
      });
}

// A row of the gate in float32: activated, and the activation's slope.
void load_gate(const NormVJPJob& job, int64_t row, float* by, float* slopes) {
  with_type(job.gate.type, [&](auto type) {
    Row<typename decltype(type)::type> gate(job.gate, row);
    with_activation(job.activation, [&](auto activation) {
      constexpr auto kActivation = decltype(activation)::value;
      for_vectors(job.width, [=](int64_t i, auto extent) {
        Floats z = gate(i, extent);
        store(by + i, activated<kActivation, float>(z));
        store(slopes + i, slope<kActivation>(z));
      });
    });
  });
}

RowsOut row_of(const RowsOut& rows, int64_t row, int64_t width) {
  int size = rows.type == Float::f32 ? 4 : 2;
  return {static_cast<char*>(rows.data) + row * width * size, rows.type};
}

// Stores the vectors v(i) of a row.
template <typename F>
void store_row_of(const RowsOut& rows, int64_t row, int64_t width, F v) {
  auto one = row_of(rows, row, width);
  with_type(one.type, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(one.data);
    for_vectors(
        width, [=](int64_t i, auto extent) { store(to + i, v(i), extent); });
  });
}

// The gradients of rows with a gate, in float32: those of the norm of x times
// the activated gate, or those for the cotangent times it.
void vjp_of_gated_rows(const NormVJPJob& job) {
  auto width = job.width;
  auto pitch = padded(width);
  float* s_row = job.scratch;
  float* g_row = s_row + pitch;
  float* by = g_row + pitch;
  float* slopes = by + pitch;
  float* of_s = slopes + pitch;
  bool first = job.gate_first;
  bool wants_weight = job.weight_gradient.sum;
  auto one = job; // a row of it
  one.rows = 1;
  for (int64_t row = 0; row < job.rows; ++row) {
    one.first_row = job.first_row + row;
    load_gate(job, row, by, slopes);
    auto s = load_row(job.s, row, width, s_row);
    auto g = load_row(job.cotangent, row, width, g_row);
    // What the gate multiplies, and the slopes in its gradient.
    auto& gated = first ? s : g;
    auto* product = first ? s_row : g_row;
    for_vectors(width, [=, from = gated.data](int64_t i, auto) {
      Floats v = load(from + i);
      store(slopes + i, load(slopes + i) * v);
      store(product + i, load(by + i) * v);
    });
    gated = padded_row(product, width);
    VJPRow<false, float, float> to{s.data, g.data, nullptr, {}, 0, 0};
    measure<false>(to, s, one, 0);

    auto rstd = to.statistics.rstd;
    auto* weight = job.weight.data + weight_offset(one, 0);
    if (job.gate_gradient.data && !first) {
      store_row_of(job.gate_gradient, row, width, [=](int64_t i) {
        return load(s.data + i) * rstd * load(weight + i) * load(slopes + i);
      });
    }
    if (first && (job.input.data || job.gate_gradient.data)) {
      one.input = {of_s, Float::f32};
    } else if (job.input.data) {
      one.input = row_of(job.input, row, width);
    }
    with_type(one.input.type, [&](auto type) {
      gradients_of_rows<typename decltype(type)::type, false, false, 1>(
          one, 0, wants_weight, false, &to);
    });
    add_partials(job, row, wants_weight, false);
    if (job.gate_gradient.data && first) {
      store_row_of(job.gate_gradient, row, width, [=](int64_t i) {
        return load(of_s + i) * load(slopes + i);
      });
    }
    if (job.input.data && first) {
      store_row_of(job.input, row, width, [=](int64_t i) {
        return load(of_s + i) * load(by + i);
      });
    }
  }
}

void norm_vjp(const NormVJPJob& job) {
  if (job.gate.data) {
    return vjp_of_gated_rows(job);
  }
  with_flag(job.center, [&](auto center) {
    if (!are_whole_rows(job)) {
      return with_type(job.input.type, [&](auto type) {
        vjp_of_other_rows<typename decltype(type)::type, center.value>(job);
      });
    }
    with_type(job.s.type, [&](auto type) {
      with_flag(job.weight_gradient.sum != nullptr, [&](auto weight) {
        with_flag(job.bias_gradient.sum != nullptr, [&](auto bias) {
          vjp_of_whole_rows<typename decltype(type)::type, center.value>(
              job, weight, bias);
        });
      });
    });
  });
}

void add_sums(CompensatedSum to, CompensatedSum from, int64_t size) {
  add_partial(from, size);
  for (int64_t i = 0; i < size; i += kWidth) {
    add_compensated(to, i, load(from.sum + i));
  }
}

void load_to(const RowsIn& rows, int64_t row, int64_t width, float* to) {
  const float* from = load_row(rows, row, width, to).data;
  if (from != to) {
    std::memcpy(to, from, width * sizeof(float)); // it has no padding
  }
}

void store_from(const float* from, int64_t width, const RowsOut& to) {
  with_type(to.type, [&](auto type) {
    auto* out = static_cast<typename decltype(type)::type*>(to.data);
    for_vectors(width, [=](int64_t i, auto extent) {
      store(out + i, load(from + i, extent), extent);
    });
  });
}

} // namespace

namespace mlx_norms::cpu {

extern const Kernels MLX_NORMS_KERNELS;
const Kernels MLX_NORMS_KERNELS = {
    norm,
    norm_vjp,
    channel_norm,
    channel_norm_vjp,
    add_sums,
    load_to,
    store_from};

} // namespace mlx_norms::cpu
