// Copyright © 2026 mlx_norms contributors
//
// In MLX's ops, which compute in float32 and round once.

#include "csrc/norm/fallback.h"
#include "csrc/common/activations.h"
#include "csrc/common/batch.h"
#include "csrc/common/sum.h"
#include "csrc/group_norm/group_norm.h"

namespace mlx_norms {

namespace {

array as_float(const array& a, mx::Stream s) {
  return mx::astype(a, mx::float32, s);
}

// The axes of positions.
std::vector<int> position_axes(const GroupNormSpec& spec, const array& x) {
  std::vector<int> axes;
  for (int i = spec.sample_axes; i + 1 < static_cast<int>(x.ndim()); ++i) {
    axes.push_back(i);
  }
  return axes;
}

// Of an array whose last axis is the channels: that axis as one of groups and
// one of their channels.
array split(const GroupNormSpec& spec, const array& a, mx::Stream s) {
  if (spec.one_channel_each()) {
    return a;
  }
  auto shape = spec.strided ? mx::Shape{-1, spec.groups}
                            : mx::Shape{spec.groups, a.shape(-1) / spec.groups};
  return mx::unflatten(a, -1, std::move(shape), s);
}

array joined(const GroupNormSpec& spec, const array& a, mx::Stream s) {
  return spec.one_channel_each() ? a : mx::flatten(a, -2, -1, s);
}

// Of x when it is split: the axes of which a group consists.
std::vector<int> group_axes(const GroupNormSpec& spec, const array& x) {
  auto axes = position_axes(spec, x);
  if (!spec.one_channel_each()) {
    axes.push_back(x.ndim() - 1 + !spec.strided);
  }
  return axes;
}

// Axis by axis: on the CPU MLX adds up all values of a sum one by one.
array group_mean(const std::vector<int>& axes, array a, mx::Stream s) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    a = mean_over(a, *axis, s);
  }
  return a;
}

array root(const GroupNormSpec& spec, const array& variance, mx::Stream s) {
  return mx::rsqrt(mx::add(variance, array(spec.eps), s), s);
}

// By statistics of each channel that are given.
array standardized(
    const GroupNormSpec& spec,
    const NormInputs& in,
    const array& x,
    mx::Stream s) {
  auto d = mx::subtract(x, as_float(*in[kMean], s), s);
  return mx::multiply(d, root(spec, as_float(*in[kVariance], s), s), s);
}

} // namespace

Arrays GroupNorm::fallback(const Arrays& inputs, mx::Stream s) const {
  NormInputs in(spec.operands, inputs.data());
  auto y = as_float(in.x(), s);
  Arrays statistics;
  if (spec.running()) {
    y = standardized(spec, in, y, s);
  } else {
    auto axes = group_axes(spec, in.x());
    auto mean_of = [&](const array& a) { return group_mean(axes, a, s); };
    auto d = split(spec, y, s);
    // Of a large mean the rounded one is not enough.
    auto mean = mean_of(d);
    d = mx::subtract(d, mean, s);
    auto rest = mean_of(d);
    d = mx::subtract(d, rest, s);
    auto variance = mean_of(mx::square(d, s));
    y = joined(spec, mx::multiply(d, root(spec, variance, s), s), s);
    for (const auto& a : {mean, rest, variance}) {
      statistics.push_back(mx::squeeze(a, axes, s));
    }
  }
  Arrays outputs{finish(spec, dtypes[0], y, in, s)};
  outputs.insert(outputs.end(), statistics.begin(), statistics.end());
  return outputs;
}

Arrays GroupNormVJP::fallback(const Arrays& inputs, mx::Stream s) const {
  const auto& vjp = this->spec;
  const auto& spec = vjp.norm;
  NormInputs in(spec.operands, inputs.data());
  auto x = as_float(in.x(), s);
  auto g = as_float(inputs.back(), s);
  auto axes = group_axes(spec, in.x());
  OptionalArray n, rstd; // rstd: as x when it is split, or of each channel
  if (spec.running()) {
    n = standardized(spec, in, x, s);
    rstd = root(spec, as_float(*in[kVariance], s), s);
  } else {
    const auto* statistics = &inputs[inputs.size() - 4];
    auto statistic = [&](int i) {
      return expand_in_turn(statistics[i], axes, s);
    };
    auto d = mx::subtract(split(spec, x, s), statistic(0), s);
    rstd = root(spec, statistic(2), s);
    d = mx::multiply(mx::subtract(d, statistic(1), s), *rstd, s);
    n = joined(spec, d, s);
  }
  if (spec.activation != Activation::None) {
    auto z = apply_parameters(spec, *n, in, s);
    g = mx::multiply(g, slope(spec.activation, z, s), s);
  }
  Arrays gradients;
  if (vjp.input) {
    auto wg = in[kWeight] ? mx::multiply(g, as_float(*in[kWeight], s), s) : g;
    if (spec.running()) {
      wg = mx::multiply(wg, *rstd, s);
    } else {
      auto mean_of = [&](const array& a) { return group_mean(axes, a, s); };
      auto d = split(spec, wg, s);
      auto along = split(spec, *n, s);
      auto of_root = mean_of(mx::multiply(d, along, s));
      d = mx::subtract(d, mean_of(d), s);
      d = mx::subtract(d, mx::multiply(along, of_root, s), s);
      wg = joined(spec, mx::multiply(d, *rstd, s), s);
    }
    gradients.push_back(mx::astype(wg, in.x().dtype(), s));
  }
  if (vjp.sums) {
    auto positions = position_axes(spec, in.x());
    for (const auto& a : {g, mx::multiply(g, *n, s)}) {
      auto sums = sum_over(a, positions, /* keepdims= */ false, s);
      gradients.push_back(mx::astype(sums, vjp.sums_dtype, s));
    }
  }
  return gradients;
}

} // namespace mlx_norms
