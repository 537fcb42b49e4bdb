// Copyright © 2026 mlx_norms contributors
//
// The norm family on rows, compiled once for each instruction set
// (MLX_NORMS_KERNELS is its table). A row is turned into float32 once and is
// then read from the cache. Sums are taken in one order and contraction is off,
// so every instruction set gives the same bits.

#include "csrc/cpu/norm_kernels.h"

#include "csrc/cpu/pairwise_sum.h"
#include "csrc/cpu/simd.h"
#include "csrc/float16.h"

namespace {

using namespace mlx_norms::cpu;

template <typename T>
struct Type {
  using type = T;
};

template <typename F>
inline void with_type(Float type, F f) {
  switch (type) {
    case Float::f32:
      return f(Type<float>{});
    case Float::f16:
      return f(Type<Half>{});
    case Float::bf16:
      return f(Type<BFloat>{});
  }
}

template <bool kValue>
struct Flag {
  static constexpr bool value = kValue;
};

template <typename F>
inline void with_flag(bool flag, F f) {
  return flag ? f(Flag<true>{}) : f(Flag<false>{});
}

// The dtype of x + residual.
template <typename X, typename R>
struct Promote {
  using type = float;
};
template <typename X>
struct Promote<X, X> {
  using type = X;
};

// One row to read.
template <typename T>
struct Row {
  const T* data;
  int64_t step;

  Row(const RowsIn& rows, int64_t row)
      : data(static_cast<const T*>(rows.data) + row * rows.row_stride),
        step(rows.step) {}

  template <typename Extent>
  Floats operator()(int64_t i, Extent extent) const {
    return step == 1 ? load(data + i, extent) : gather(i, extent);
  }

 private:
  Floats gather(int64_t i, Whole) const {
    return gather(i, Part{kWidth});
  }
  Floats gather(int64_t i, Part part) const {
    T lanes[kWidth] = {};
    for (int j = 0; j < part.n; ++j) {
      lanes[j] = data[(i + j) * step];
    }
    return load(lanes);
  }
};

// A row in float32, padded to whole steps of the sums.
struct FloatRow {
  const float* data;
  float* padded; // the same; null where there is no padding
  int64_t width;

  // Puts value in every lane past the row's end.
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

  // K sums of term(v, i) over the row's vectors v, at element i.
  template <int K, typename F>
  Sums<K> sums(F term) const {
    return pairwise_sums<K>(mlx_norms::cpu::padded(width), [&](int64_t i) {
      return term(load(data + i), i);
    });
  }
};

// A row that fits one vector. Its sums have the same bits as FloatRow's, whose
// other lanes are zeros.
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

// The row itself where it is in float32 and needs no padding, else a copy.
FloatRow
load_row(const RowsIn& rows, int64_t row, int64_t width, float* scratch) {
  if (rows.type == Float::f32 && rows.step == 1 && width == padded(width)) {
    auto* data = static_cast<const float*>(rows.data) + row * rows.row_stride;
    return {data, nullptr, width};
  }
  with_type(rows.type, [&](auto type) {
    Row<typename decltype(type)::type> from(rows, row);
    for_vectors(width, [&](int64_t i, auto extent) {
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

// Calls put(i, v) with the vectors of x + residual, rounded to the sum's dtype,
// which is also stored.
template <typename X, typename R, typename F>
inline void add_row(const NormJob& job, int64_t row, F put) {
  using S = typename Promote<X, R>::type;
  Row<X> x(job.x, row);
  Row<R> residual(job.residual, row);
  auto* sum = static_cast<S*>(job.sum.data) + row * job.width;
  bool clamp = job.clamp && job.sum.type == Float::f16;
  for_vectors(job.width, [&](int64_t i, auto extent) {
    Floats v = x(i, extent) + residual(i, extent);
    v = round_to<S>(clamp ? clamp_half(v) : v);
    store(sum + i, v, extent);
    put(i, v);
  });
}

FloatRow input_row(const NormJob& job, int64_t row) {
  if (!job.residual.data) {
    return load_row(job.x, row, job.width, job.scratch);
  }
  with_type(job.x.type, [&](auto x) {
    with_type(job.residual.type, [&](auto residual) {
      add_row<typename decltype(x)::type, typename decltype(residual)::type>(
          job, row, [&](int64_t i, Floats v) { store(job.scratch + i, v); });
    });
  });
  return padded_row(job.scratch, job.width);
}

struct Statistics {
  float mean;
  float correction; // the mean of what the rounded mean leaves
  float rstd;

  Floats normalise(Floats v) const {
    return (v - mean - correction) * rstd;
  }
};

template <typename AnyRow>
inline Statistics row_statistics(AnyRow row, bool centre, float eps) {
  auto width = row.width;
  Statistics s = {};
  float variance;
  if (centre) {
    auto sum =
        row.template sums<1>([](Floats v, int64_t) { return Term<1>{v}; });
    s.mean = sum.v[0] / width;
    row.pad(s.mean); // no deviation past the row's end
    auto sums = row.template sums<2>([&](Floats v, int64_t) {
      Floats d = v - s.mean;
      return Term<2>{d, d * d};
    });
    s.correction = sums.v[0] / width;
    float square = s.correction * s.correction;
    variance = sums.v[1] / width - square;
    if (variance < 16 * square) {
      // The mean's own error outweighs the spread, and the difference of the
      // two would be mostly rounding.
      auto spread = row.template sums<1>([&](Floats v, int64_t i) {
        Floats d = v - s.mean - s.correction;
        if (i + kWidth > width) {
          d = replace_from(d, width - i, 0.0f);
        }
        return Term<1>{d * d};
      });
      variance = spread.v[0] / width;
    }
  } else {
    auto sum =
        row.template sums<1>([](Floats v, int64_t) { return Term<1>{v * v}; });
    variance = sum.v[0] / width;
  }
  s.rstd = 1.0f / __builtin_sqrtf(variance + eps);
  return s;
}

Statistics statistics(const FloatRow& row, bool centre, float eps) {
  return row_statistics(row, centre, eps);
}

// Where the weight of a job's row, or its gradient, begins.
template <typename Job>
int64_t weight_offset(const Job& job, int64_t row) {
  auto rows = job.weight.rows;
  return (rows == 1 ? 0 : (job.first_row + row) % rows) * padded(job.width);
}

// Stores a row's vectors, of which n(i) gives the normalised values.
template <typename T, bool kEarly, bool kBias, typename F>
inline void store_row(const NormJob& job, int64_t row, F n) {
  const float* weight = job.weight.data + weight_offset(job, row);
  auto* to = static_cast<T*>(job.normalised.data) + row * job.width;
  for_vectors(job.width, [&](int64_t i, auto extent) {
    Floats y = n(i);
    if (kEarly) {
      y = round_to<T>(y);
    }
    y *= load(weight + i);
    if (kBias) {
      y += load(job.bias + i);
    }
    store(to + i, y, extent);
  });
}

// Calls f(type, early, bias), types to compile a loop for.
template <typename F>
void with_output(const NormJob& job, F f) {
  with_type(job.normalised.type, [&](auto type) {
    with_flag(!job.late, [&](auto early) {
      with_flag(job.bias != nullptr, [&](auto bias) { f(type, early, bias); });
    });
  });
}

// Rows that fit one vector go through each step together, in a loop that is
// compiled for it: the calls a row would cost more than its arithmetic.
constexpr int kShortRows = 32;

// Loads n rows from `first` on.
void load_short_rows(const NormJob& job, int64_t first, int n, Floats* v) {
  with_type(job.x.type, [&](auto x_type) {
    using X = typename decltype(x_type)::type;
    if (!job.residual.data) {
      for (int i = 0; i < n; ++i) {
        Row<X> x(job.x, first + i);
        for_vectors(
            job.width, [&](int64_t j, auto extent) { v[i] = x(j, extent); });
      }
      return;
    }
    with_type(job.residual.type, [&](auto residual_type) {
      using R = typename decltype(residual_type)::type;
      for (int i = 0; i < n; ++i) {
        add_row<X, R>(job, first + i, [&](int64_t, Floats sum) { v[i] = sum; });
      }
    });
  });
}

void norm_short_rows(const NormJob& job) {
  Floats v[kShortRows];
  for (int64_t first = 0; first < job.rows; first += kShortRows) {
    int64_t left = job.rows - first;
    int n = left < kShortRows ? left : kShortRows;
    load_short_rows(job, first, n, v);
    for (int i = 0; i < n; ++i) {
      ShortRow row{v[i], job.width};
      v[i] = row_statistics(row, job.centre, job.eps).normalise(v[i]);
    }
    with_output(job, [&](auto type, auto early, auto bias) {
      using T = typename decltype(type)::type;
      for (int i = 0; i < n; ++i) {
        store_row<T, early.value, bias.value>(
            job, first + i, [&](int64_t) { return v[i]; });
      }
    });
  }
}

void norm(const NormJob& job) {
  if (job.width <= kWidth) {
    return norm_short_rows(job);
  }
  with_output(job, [&](auto type, auto early, auto bias) {
    using T = typename decltype(type)::type;
    for (int64_t row = 0; row < job.rows; ++row) {
      auto v = input_row(job, row);
      auto s = statistics(v, job.centre, job.eps);
      store_row<T, early.value, bias.value>(
          job, row, [&](int64_t i) { return s.normalise(load(v.data + i)); });
    }
  });
}

inline void add_compensated(CompensatedSum to, int64_t i, Floats v) {
  Floats sum = load(to.sum + i);
  Floats y = v - load(to.error + i);
  Floats next = sum + y;
  Floats error = (next - sum) - y;
  // Of an infinite sum the error is NaN, and must not spread.
  store(to.error + i, error == error ? error : Floats{});
  store(to.sum + i, next);
}

// The input's gradient: rstd * (wg - mean(wg) - n * mean(wg * n)), with wg the
// weighted cotangent, plus the sum's own cotangent; no mean(wg) without centre.
template <typename T>
void input_gradient_row(
    const NormVJPJob& job,
    int64_t row,
    const float* v,
    const float* g,
    const Statistics& s) {
  const float* weight = job.weight.data + weight_offset(job, row);
  auto sums = pairwise_sums<2>(padded(job.width), [&](int64_t i) {
    Floats wg = load(g + i) * load(weight + i);
    return Term<2>{wg, wg * s.normalise(load(v + i))};
  });
  float mean_wg = job.centre ? sums.v[0] / job.width : 0.0f;
  float mean_wgn = sums.v[1] / job.width;
  bool clamp = job.clamp && job.s.type == Float::f16;
  auto* to = static_cast<T*>(job.input.data) + row * job.width;

  with_type(job.sum_cotangent.type, [&](auto type) {
    Row<typename decltype(type)::type> residual(job.sum_cotangent, row);
    for_vectors(job.width, [&](int64_t i, auto extent) {
      Floats x = load(v + i);
      Floats wg = load(g + i) * load(weight + i);
      Floats dx = (wg - mean_wg - s.normalise(x) * mean_wgn) * s.rstd;
      if (job.sum_cotangent.data) {
        dx += residual(i, extent);
      }
      if (clamp) {
        dx = x == kFloat16Max ? Floats{} : dx;
        dx = x == -kFloat16Max ? Floats{} : dx;
      }
      store(to + i, dx, extent);
    });
  });
}

void weight_gradient_row(
    const NormVJPJob& job,
    int64_t row,
    const float* v,
    const float* g,
    const Statistics& s) {
  auto at = weight_offset(job, row);
  auto [sum, error] = job.weight_gradient;
  for (int64_t i = 0; i < job.width; i += kWidth) {
    Floats n = s.normalise(load(v + i));
    add_compensated({sum + at, error + at}, i, load(g + i) * n);
  }
}

void bias_gradient_row(const NormVJPJob& job, const float* g) {
  for (int64_t i = 0; i < job.width; i += kWidth) {
    add_compensated(job.bias_gradient, i, load(g + i));
  }
}

void norm_vjp(const NormVJPJob& job) {
  for (int64_t row = 0; row < job.rows; ++row) {
    auto v = load_row(job.s, row, job.width, job.scratch);
    auto* g_scratch = job.scratch + padded(job.width);
    auto* g = load_row(job.cotangent, row, job.width, g_scratch).data;
    if (job.bias_gradient.sum) {
      bias_gradient_row(job, g);
    }
    if (!job.input.data && !job.weight_gradient.sum) {
      continue;
    }
    auto s = statistics(v, job.centre, job.eps);
    if (job.weight_gradient.sum) {
      weight_gradient_row(job, row, v.data, g, s);
    }
    if (job.input.data) {
      with_type(job.input.type, [&](auto type) {
        using T = typename decltype(type)::type;
        input_gradient_row<T>(job, row, v.data, g, s);
      });
    }
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
    for_vectors(width, [&](int64_t i, auto extent) {
      store(out + i, load(from + i, extent), extent);
    });
  });
}

} // namespace

namespace mlx_norms::cpu {

extern const Kernels MLX_NORMS_KERNELS;
const Kernels MLX_NORMS_KERNELS = {norm, norm_vjp, load_to, store_from};

} // namespace mlx_norms::cpu
