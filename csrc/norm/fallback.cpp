// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/fallback.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "csrc/common/activations.h"
#include "csrc/common/float16.h"
#include "csrc/common/sum.h"

namespace mlx_norms {

namespace {

array as_float(const array& a, mx::Stream s) {
  return mx::astype(a, mx::float32, s);
}

// The axes of a sample's positions.
std::vector<int> position_axes(const NormSpec& spec, const array& x) {
  std::vector<int> axes(x.ndim() - 1 - spec.sample_axes);
  std::iota(axes.begin(), axes.end(), spec.sample_axes);
  return axes;
}

// Makes the channels an axis of groups and one of their channels.
array split(const NormSpec& spec, const array& a, mx::Stream s) {
  if (spec.groups == 0) {
    return a;
  }
  auto shape = spec.strided ? mx::Shape{-1, spec.groups}
                            : mx::Shape{spec.groups, a.shape(-1) / spec.groups};
  return mx::unflatten(a, -1, std::move(shape), s);
}

array joined(const NormSpec& spec, const array& a, mx::Stream s) {
  return spec.groups == 0 ? a : mx::flatten(a, -2, -1, s);
}

// Those of x, split, over which a statistic is.
std::vector<int> reduced_axes(const NormSpec& spec, const array& x) {
  if (!spec.grouped) {
    return {-1};
  }
  auto axes = position_axes(spec, x);
  if (spec.groups) {
    axes.push_back(x.ndim() - 1 + !spec.strided);
  }
  return axes;
}

// The mean or, for l2, the sum. Axis by axis: on the CPU MLX adds up all values
// of a sum one by one.
array measure(
    const NormSpec& spec,
    const std::vector<int>& axes,
    array a,
    mx::Stream s) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    a = spec.l2 ? sum_over(a, *axis, s) : mean_over(a, *axis, s);
  }
  return a;
}

// The square of a root that eps bounds, in float32's normal range: the
// derivative of rsqrt at 0 is not finite.
array min_square(const NormSpec& spec) {
  auto min = std::numeric_limits<float>::min();
  return array(spec.eps > 0 ? std::max(spec.eps * spec.eps, min) : 0.0f);
}

struct Normalized {
  array n;
  array rstd;             // broadcasts to x, split
  Arrays statistics = {}; // [mean, rest], variance, likewise
};

// Normalizes in float32. The mean is corrected once: with the rounded mean
// alone, a row whose mean is large compared to its spread comes out wrong.
Normalized normalize(
    const NormSpec& spec,
    const array& x,
    const NormInputs& in,
    mx::Stream s) {
  auto d = as_float(x, s);
  if (spec.identity) {
    return {d, array(1.0f)};
  }
  auto root = [&](const array& variance) {
    return spec.eps_bounds
        ? mx::rsqrt(mx::maximum(variance, min_square(spec), s), s)
        : mx::rsqrt(mx::add(variance, array(spec.eps), s), s);
  };
  if (spec.has_running_statistics()) {
    auto rstd = root(as_float(*in[kVariance], s));
    d = mx::subtract(d, as_float(*in[kMean], s), s);
    return {mx::multiply(d, rstd, s), rstd};
  }
  auto axes = reduced_axes(spec, x);
  d = split(spec, d, s);
  Arrays statistics;
  for (int i = 0; spec.center && i < 2; ++i) {
    statistics.push_back(measure(spec, axes, d, s));
    d = mx::subtract(d, statistics.back(), s);
  }
  statistics.push_back(measure(spec, axes, mx::square(d, s), s));
  auto rstd = root(statistics.back());
  return {joined(spec, mx::multiply(d, rstd, s), s), rstd, statistics};
}

// y * (1 + scale) + shift, each step in MLX's result_type.
array modulate(
    const NormSpec& spec,
    const array& normalized,
    const NormInputs& in,
    mx::Stream s) {
  auto y = normalized;
  bool early = spec.rounding == Rounding::Early;
  if (auto* scale = in[kScale]) {
    auto factor = early ? mx::add(array(1.0f, scale->dtype()), *scale, s)
                        : scale_factor(*scale, s);
    y = mx::multiply(y, factor, s);
  }
  if (auto* shift = in[kShift]) {
    y = mx::add(y, early ? *shift : as_float(*shift, s), s);
  }
  return y;
}

// The result y, gated or activated: early in MLX's result_type, late in
// float32.
array gate_result(
    const NormSpec& spec,
    const array& y,
    const NormInputs& in,
    mx::Stream s) {
  if (!in[kGate]) {
    return activated(spec.activation, y, s);
  }
  bool early = spec.rounding == Rounding::Early;
  auto gate = early ? *in[kGate] : as_float(*in[kGate], s);
  return mx::multiply(y, activated(spec.activation, gate, s), s);
}

// The gated x, which is normalized if the gate comes first.
array gated_input(const NormSpec& spec, const NormInputs& in, mx::Stream s) {
  bool early = spec.rounding == Rounding::Early;
  auto gate = early ? *in[kGate] : as_float(*in[kGate], s);
  auto x = early ? in.x() : as_float(in.x(), s);
  return mx::multiply(x, activated(spec.activation, gate, s), s);
}

} // namespace

namespace {

// What is added to the residual but for a factor: x, or its norm.
array added_to_residual(
    const NormSpec& spec,
    const NormInputs& in,
    mx::Stream s) {
  const auto& x = in.x();
  if (!spec.norm_first) {
    return x;
  }
  auto dtype = spec.rounding == Rounding::Early ? x.dtype() : mx::float32;
  NormInputs of_x{{kX, &x}, {kWeight, in[kPostWeight]}};
  return fallback_norm(spec.first_norm(), dtype, of_x, s)[0];
}

// Rounded by MLX early, in float32 late.
array scaled_residual(
    const NormSpec& spec,
    const array& residual,
    mx::Stream s) {
  if (spec.alpha == 1.0f) {
    return residual;
  }
  auto r = spec.rounding == Rounding::Late ? as_float(residual, s) : residual;
  return mx::multiply(r, array(spec.alpha, r.dtype()), s);
}

} // namespace

array sum_of(const NormSpec& spec, const NormInputs& in, mx::Stream s) {
  if (auto* residual2 = in[kResidual2]) {
    auto first = in;
    first[kResidual2] = nullptr;
    return mx::add(sum_of(spec, first, s), *residual2, s);
  }
  auto x = added_to_residual(spec, in, s);
  auto residual = scaled_residual(spec, *in[kResidual], s);
  if (!spec.is_factored()) {
    return mx::astype(mx::add(x, residual, s), in.sum_dtype(), s);
  }
  if (spec.factor_of_sum) {
    auto sum = mx::add(x, *in[kResidual], s);
    auto factor = mx::reshape(*in[kFactor], {}, s);
    return mx::astype(mx::multiply(sum, factor, s), sum.dtype(), s);
  }
  auto factor =
      in[kFactor] ? *in[kFactor] : array(float{spec.factor}, x.dtype());
  if (spec.rounding == Rounding::Late) {
    factor = as_float(factor, s);
    x = as_float(x, s);
  }
  auto sum = mx::add(residual, mx::multiply(x, factor, s), s);
  return mx::astype(sum, mx::result_type(in.x(), *in[kResidual]), s);
}

array scale_factor(const array& scale, mx::Stream s) {
  return mx::add(array(1.0f), as_float(scale, s), s);
}

bool product_keeps(mx::Dtype dtype, const array& scale) {
  return mx::promote_types(dtype, scale.dtype()) == dtype;
}

array shifted_weight(const NormSpec& spec, const array& weight, mx::Stream s) {
  return mx::add(as_float(weight, s), array(float{spec.weight_offset}), s);
}

array apply_parameters(
    const NormSpec& spec,
    const array& normalized,
    const NormInputs& in,
    mx::Stream s) {
  auto y = as_float(normalized, s);
  if (spec.has(kWeight)) {
    y = mx::multiply(y, shifted_weight(spec, *in[kWeight], s), s);
  }
  if (spec.has(kBias)) {
    y = mx::add(y, as_float(*in[kBias], s), s);
  }
  return y;
}

array finish(
    const NormSpec& spec,
    mx::Dtype dtype,
    const array& normalized,
    const NormInputs& in,
    mx::Stream s) {
  auto y = apply_parameters(spec, normalized, in, s);
  bool early = spec.rounding == Rounding::Early;
  if (spec.is_modulated()) {
    y = modulate(spec, early ? mx::astype(y, dtype, s) : y, in, s);
  }
  if (spec.gates_result()) {
    y = gate_result(spec, early ? mx::astype(y, dtype, s) : y, in, s);
  }
  if (spec.is_multiplied()) {
    y = early ? mx::astype(y, dtype, s) : y;
    y = mx::multiply(y, array(float{spec.multiplier}, y.dtype()), s);
  }
  return mx::astype(y, dtype, s);
}

array sum_of_bias(const array& a, const array* weight, mx::Stream s) {
  bool of_groups = weight && weight->ndim() > 1;
  if (of_groups) {
    return sum_to(a, *weight, s);
  }
  std::vector<int> rows(a.ndim() - 1);
  std::iota(rows.begin(), rows.end(), 0);
  return sum_over(a, rows, /* keepdims= */ false, s);
}

array zero_where_saturated(const array& a, const array& s, mx::Stream stream) {
  auto saturated = mx::greater_equal(
      mx::abs(as_float(s, stream), stream), array(kFloat16Max), stream);
  return mx::where(saturated, array(0, a.dtype()), a, stream);
}

namespace {

// The same norm of rows.
NormSpec of_rows(NormSpec spec) {
  spec.axis = -1;
  return spec;
}

array as_rows(const array& a, int axis, mx::Stream s) {
  return mx::moveaxis(a, axis, -1, s);
}

array from_rows(const array& a, int axis, mx::Stream s) {
  return mx::contiguous(
      mx::moveaxis(a, -1, axis, s), /* allow_col_major= */ false, s);
}

} // namespace

Arrays fallback_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream s) {
  if (spec.axis != -1) {
    auto rows = in;
    auto x = as_rows(in.x(), spec.axis, s);
    rows[kX] = &x;
    auto y = fallback_norm(of_rows(spec), dtype, rows, s)[0];
    return {from_rows(y, spec.axis, s)};
  }
  auto x = spec.gate_first ? gated_input(spec, in, s) : in.x();
  if (spec.has(kResidual)) {
    x = sum_of(spec, in, s);
    if (spec.clamp && x.dtype() == mx::float16) {
      auto max = array(kFloat16Max, mx::float16);
      x = mx::clip(x, mx::negative(max, s), max, s);
    }
  }
  auto [y, _, statistics] = normalize(spec, x, in, s);
  if (spec.rounding == Rounding::Early) {
    y = mx::astype(y, dtype, s);
  }
  y = finish(spec, dtype, y, in, s);
  if (spec.has(kResidual)) {
    return {y, x};
  }
  Arrays outputs{y};
  for (int i = 0; i + 1 < spec.n_outputs(); ++i) {
    outputs.push_back(mx::squeeze(statistics[i], reduced_axes(spec, x), s));
  }
  return outputs;
}

Arrays fallback_of_inputs(
    const NormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream s) {
  return fallback_norm(spec, dtype, {spec.operands, inputs.data()}, s);
}

Gradients fallback_gradients(
    const NormSpec& spec,
    const NormInputs& in,
    Operands wanted,
    mx::Stream s) {
  if (spec.axis != -1) {
    auto rows = in;
    auto x = as_rows(in.x(), spec.axis, s);
    auto cotangent = as_rows(*in[kCotangent], spec.axis, s);
    rows[kX] = &x;
    rows[kCotangent] = &cotangent;
    auto gradients = fallback_gradients(of_rows(spec), rows, wanted, s);
    if (auto& of_x = gradients[kX]) {
      of_x = from_rows(*of_x, spec.axis, s);
    }
    return gradients;
  }
  const auto& x_or_sum = in.x();
  auto* weight = in[kWeight];
  auto x = as_float(x_or_sum, s);
  auto g = as_float(*in[kCotangent], s);
  // The activated gate and what it multiplies: the input, or the result.
  bool gated = spec.has(kGate), first = spec.gate_first;
  auto gate = gated ? as_float(*in[kGate], s) : x;
  auto by = gated ? activated(spec.activation, gate, s) : x;
  auto [n, rstd, _] =
      normalize(spec, first ? mx::multiply(x, by, s) : x, in, s);
  auto cotangent = g;
  if (gated && !first) {
    g = mx::multiply(g, by, s);
  }
  if (!gated && spec.activation != Activation::None) {
    auto z = apply_parameters(spec, n, in, s);
    g = mx::multiply(g, slope(spec.activation, z, s), s);
  }
  auto weighted = [&](const array& a) {
    return weight ? mx::multiply(a, shifted_weight(spec, *weight, s), s) : a;
  };

  Gradients gradients;
  auto of_product = g; // of the gate's
  if (wanted.has(kX) || (wanted.has(kGate) && first)) {
    auto dx = weighted(g);
    if (!spec.identity && !spec.has_running_statistics()) {
      auto axes = reduced_axes(spec, x);
      auto wg = split(spec, dx, s), along = split(spec, n, s);
      auto of_root = measure(spec, axes, mx::multiply(wg, along, s), s);
      if (spec.eps_bounds) {
        auto squares = measure(spec, axes, mx::square(x, s), s);
        auto constant = mx::less_equal(squares, min_square(spec), s);
        of_root = mx::where(constant, array(0.0f), of_root, s);
      }
      dx = mx::subtract(wg, mx::multiply(along, of_root, s), s);
      if (spec.center) {
        dx = mx::subtract(dx, measure(spec, axes, wg, s), s);
      }
      dx = joined(spec, mx::multiply(dx, rstd, s), s);
    } else if (!spec.identity) {
      dx = mx::multiply(dx, rstd, s);
    }
    if (spec.has(kSumCotangent)) {
      dx = mx::add(dx, as_float(*in[kSumCotangent], s), s);
    }
    if (spec.clamp && x_or_sum.dtype() == mx::float16) {
      dx = zero_where_saturated(dx, x_or_sum, s);
    }
    of_product = dx;
    if (wanted.has(kX)) {
      gradients[kX] = first ? mx::multiply(dx, by, s) : dx;
    }
  }
  auto of_sample = [&](const array& a) {
    return sum_over(a, position_axes(spec, x), /* keepdims= */ false, s);
  };
  if (wanted.has(kWeight)) {
    auto gn = mx::multiply(g, n, s);
    gradients[kWeight] = spec.grouped ? of_sample(gn) : sum_to(gn, *weight, s);
  }
  if (wanted.has(kBias)) {
    gradients[kBias] = spec.grouped ? of_sample(g) : sum_of_bias(g, weight, s);
  }
  if (wanted.has(kGate)) {
    auto dz = first ? mx::multiply(of_product, x, s)
                    : mx::multiply(cotangent, weighted(n), s);
    gradients[kGate] = mx::multiply(dz, slope(spec.activation, gate, s), s);
  }
  return gradients;
}

} // namespace mlx_norms
