// Copyright © 2026 mlx_norms contributors
//
// x + residual as the rows of a norm.

#pragma once

#include <type_traits>

#include "csrc/common/float16.h"
#include "csrc/norm/cpu/rows.h"

namespace {

// The dtype of x + residual.
template <typename X, typename R>
struct Promote {
  using type = float;
};
template <typename X>
struct Promote<X, X> {
  using type = X;
};

// Lanes beyond +-65504 saturate, inf too; NaN stays NaN.
inline Floats clamp_half(Floats v) {
  Floats below = v > kFloat16Max ? splat(kFloat16Max) : v;
  return below < -kFloat16Max ? splat(-kFloat16Max) : below;
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
      : x(job.in[kX], row),
        residual(job.in[kResidual], row),
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
  with_type(job.in[kX].type, [&]<typename X>(Type<X>) {
    with_type(job.in[kResidual].type, [&]<typename R>(Type<R>) {
      if constexpr (std::is_same_v<X, float> && !std::is_same_v<R, float>) {
        if (job.sum.type == job.in[kResidual].type) {
          return f(Type<AddedRow<X, R, R>>{});
        }
      }
      f(Type<AddedRow<X, R>>{});
    });
  });
}

} // namespace
