// Copyright © 2026 mlx_norms contributors
//
// The norm family on rows, compiled once for each instruction set
// (MLX_NORMS_ISA names it). A row is turned into float32 once and is then read
// from the cache. Sums are taken in one order and contraction is off, so every
// instruction set gives the same bits.

#include "csrc/cpu/norm_kernels.h"

#include "csrc/cpu/pairwise_sum.h"
#include "csrc/cpu/simd.h"

namespace {

using namespace mlx_norms::cpu;

constexpr float kHalfMax = 65504.0f;

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
    for (int64_t j = 0; j < part.n; ++j) {
      lanes[j] = data[(i + j) * step];
    }
    return load(lanes);
  }
};

// The row in float32: itself where it is that already, else in scratch.
const float*
load_row(const RowsIn& rows, int64_t row, int64_t width, float* scratch) {
  if (rows.type == Float::f32 && rows.step == 1) {
    return static_cast<const float*>(rows.data) + row * rows.row_stride;
  }
  with_type(rows.type, [&](auto type) {
    Row<typename decltype(type)::type> from(rows, row);
    for_vectors(width, [&](int64_t i, auto extent) {
      store(scratch + i, from(i, extent), extent);
    });
  });
  return scratch;
}

// Lanes beyond +-65504 saturate, inf too; NaN stays NaN.
inline Floats clamp_half(Floats v) {
  Words bits = as_words(v);
  Words magnitude = bits & 0x7fffffff;
  Words max = as_words(splat(kHalfMax));
  Ints beyond = (magnitude > max) & ~is_nan(magnitude);
  return as_floats(select(beyond, max | (bits & 0x80000000u), bits));
}

// scratch = x + residual, rounded to the sum's dtype, which is also stored.
template <typename X, typename R>
void add_row(const NormJob& job, int64_t row) {
  using S = typename Promote<X, R>::type;
  Row<X> x(job.x, row);
  Row<R> residual(job.residual, row);
  auto* sum = static_cast<S*>(job.sum.data) + row * job.width;
  bool clamp = job.clamp && job.sum.type == Float::f16;
  for_vectors(job.width, [&](int64_t i, auto extent) {
    Floats v = x(i, extent) + residual(i, extent);
    v = round_to<S>(clamp ? clamp_half(v) : v);
    store(sum + i, v, extent);
    store(job.scratch + i, v, extent);
  });
}

const float* input_row(const NormJob& job, int64_t row) {
  if (!job.residual.data) {
    return load_row(job.x, row, job.width, job.scratch);
  }
  with_type(job.x.type, [&](auto x) {
    with_type(job.residual.type, [&](auto residual) {
      add_row<typename decltype(x)::type, typename decltype(residual)::type>(
          job, row);
    });
  });
  return job.scratch;
}

struct Statistics {
  float mean;
  float correction; // the mean of what the rounded mean leaves
  float rstd;

  Floats normalise(Floats v) const {
    return (v - mean - correction) * rstd;
  }
};

Statistics
statistics(const float* v, int64_t width, bool centre, float eps) {
  Statistics s = {};
  float variance;
  if (centre) {
    s.mean = pairwise_sums<1>(width, [&](int64_t i, auto extent) {
               return Term<1>{load(v + i, extent)};
             }).v[0] /
        width;
    auto sums = pairwise_sums<2>(width, [&](int64_t i, auto extent) {
      Floats d = keep(load(v + i, extent) - s.mean, extent);
      return Term<2>{d, d * d};
    });
    s.correction = sums.v[0] / width;
    variance = sums.v[1] / width - s.correction * s.correction;
    // The difference can round below zero on a constant row.
    variance = variance < 0.0f ? 0.0f : variance;
  } else {
    variance = pairwise_sums<1>(width, [&](int64_t i, auto extent) {
                 Floats x = load(v + i, extent);
                 return Term<1>{x * x};
               }).v[0] /
        width;
  }
  s.rstd = 1.0f / __builtin_sqrtf(variance + eps);
  return s;
}

const float* weight_row(const Weight& weight, int64_t row, int64_t width) {
  return weight.data + (weight.rows == 1 ? 0 : row % weight.rows) * width;
}

template <typename T, bool kEarly, bool kBias>
void normalise_row(
    const NormJob& job,
    int64_t row,
    const float* v,
    const Statistics& s) {
  const float* weight = weight_row(job.weight, job.first_row + row, job.width);
  auto* to = static_cast<T*>(job.normalised.data) + row * job.width;
  for_vectors(job.width, [&](int64_t i, auto extent) {
    Floats y = s.normalise(load(v + i, extent));
    if (kEarly) {
      y = round_to<T>(y);
    }
    y *= load(weight + i, extent);
    if (kBias) {
      y += load(job.bias + i, extent);
    }
    store(to + i, y, extent);
  });
}

void norm(const NormJob& job) {
  with_type(job.normalised.type, [&](auto type) {
    with_flag(!job.late, [&](auto early) {
      with_flag(job.bias != nullptr, [&](auto bias) {
        using T = typename decltype(type)::type;
        for (int64_t row = 0; row < job.rows; ++row) {
          const float* v = input_row(job, row);
          auto s = statistics(v, job.width, job.centre, job.eps);
          normalise_row<T, early.value, bias.value>(job, row, v, s);
        }
      });
    });
  });
}

template <typename Extent>
inline void
add_compensated(CompensatedSum to, int64_t i, Floats v, Extent extent) {
  Floats sum = load(to.sum + i, extent);
  Floats y = v - load(to.error + i, extent);
  Floats next = sum + y;
  store(to.error + i, (next - sum) - y, extent);
  store(to.sum + i, next, extent);
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
  const float* weight = weight_row(job.weight, job.first_row + row, job.width);
  auto sums = pairwise_sums<2>(job.width, [&](int64_t i, auto extent) {
    Floats wg = load(g + i, extent) * load(weight + i, extent);
    return Term<2>{wg, wg * s.normalise(load(v + i, extent))};
  });
  float mean_wg = job.centre ? sums.v[0] / job.width : 0.0f;
  float mean_wgn = sums.v[1] / job.width;
  bool clamp = job.clamp && job.s.type == Float::f16;
  auto* to = static_cast<T*>(job.input.data) + row * job.width;

  with_type(job.sum_cotangent.type, [&](auto type) {
    Row<typename decltype(type)::type> residual(job.sum_cotangent, row);
    for_vectors(job.width, [&](int64_t i, auto extent) {
      Floats x = load(v + i, extent);
      Floats wg = load(g + i, extent) * load(weight + i, extent);
      Floats dx = (wg - mean_wg - s.normalise(x) * mean_wgn) * s.rstd;
      if (job.sum_cotangent.data) {
        dx += residual(i, extent);
      }
      if (clamp) {
        Words magnitude = as_words(x) & 0x7fffffff;
        Words max = as_words(splat(kHalfMax));
        dx = as_floats(select(magnitude == max, Words{}, as_words(dx)));
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
  auto at = (job.first_row + row) % job.weight.rows * job.width;
  CompensatedSum to{job.weight_gradient.sum + at, job.weight_gradient.error + at};
  for_vectors(job.width, [&](int64_t i, auto extent) {
    Floats n = s.normalise(load(v + i, extent));
    add_compensated(to, i, load(g + i, extent) * n, extent);
  });
}

void bias_gradient_row(const NormVJPJob& job, const float* g) {
  for_vectors(job.width, [&](int64_t i, auto extent) {
    add_compensated(job.bias_gradient, i, load(g + i, extent), extent);
  });
}

void norm_vjp(const NormVJPJob& job) {
  for (int64_t row = 0; row < job.rows; ++row) {
    const float* v = load_row(job.s, row, job.width, job.scratch);
    const float* g =
        load_row(job.cotangent, row, job.width, job.scratch + job.width);
    if (job.bias_gradient.sum) {
      bias_gradient_row(job, g);
    }
    if (!job.input.data && !job.weight_gradient.sum) {
      continue;
    }
    auto s = statistics(v, job.width, job.centre, job.eps);
    if (job.weight_gradient.sum) {
      weight_gradient_row(job, row, v, g, s);
    }
    if (job.input.data) {
      with_type(job.input.type, [&](auto type) {
        input_gradient_row<typename decltype(type)::type>(job, row, v, g, s);
      });
    }
  }
}

void load_to(const RowsIn& rows, int64_t row, int64_t width, float* to) {
  const float* from = load_row(rows, row, width, to);
  if (from != to) {
    std::memcpy(to, from, width * sizeof(float));
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
