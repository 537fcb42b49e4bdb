// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/norm_add_norm/norm_add_norm.h"

#include "csrc/common/float16.h"
#include "csrc/norm/fallback.h"

namespace mlx_norms {

namespace {

// A float16 sum within its range; the derivative of what saturates is zero.
array saturate(const array& sum, mx::Stream s) {
  auto max = array(kFloat16Max, mx::float16);
  auto bounded = mx::clip(sum, mx::negative(max, s), max, s);
  auto saturated = mx::greater_equal(mx::abs(sum, s), max, s);
  return mx::where(saturated, mx::stop_gradient(bounded, s), sum, s);
}

} // namespace

Arrays in_two_norms(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream s) {
  bool late = spec.rounding == Rounding::Late;
  auto n_dtype = late ? mx::float32 : in.x().dtype();
  NormInputs of_x{{kX, &in.x()}, {kWeight, in[kPostWeight]}};
  auto n = make_norm(spec.first_norm(), n_dtype, of_x.arrays(), s)[0];
  auto next = spec.second_norm();
  auto of_sum = in;
  of_sum[kX] = &n;
  of_sum[kPostWeight] = nullptr;
  auto sum_dtype = in.sum_dtype();
  if (of_sum.sum_dtype() == sum_dtype) {
    return make_norm(next, dtype, of_sum.arrays(), s);
  }
  auto sum = mx::astype(sum_of(next, of_sum, s), sum_dtype, s);
  if (spec.clamp && sum_dtype == mx::float16) {
    sum = saturate(sum, s);
  }
  NormInputs of_rounded{{kX, &sum}, {kWeight, in[kWeight]}};
  return {make_norm(next.without_sum(), dtype, of_rounded.arrays(), s)[0], sum};
}

} // namespace mlx_norms
