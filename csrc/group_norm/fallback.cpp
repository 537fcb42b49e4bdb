// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/fallback.h"

#include "csrc/norm/gating.h"

namespace mlx_norms {

namespace {

array as_float(const array& a, mx::Stream s) {
  return mx::astype(a, mx::float32, s);
}

// x with an axis of groups and one of their channels, and the axes of which a
// group consists.
struct Grouped {
  array x;
  std::vector<int> axes;
};

Grouped in_groups(const GroupNormSpec& spec, const array& x, mx::Stream s) {
  std::vector<int> axes;
  int channels = x.ndim() - 1;
  for (int i = spec.batch ? 0 : 1; i < channels; ++i) {
    axes.push_back(i);
  }
  if (spec.one_channel_each()) {
    return {x, axes};
  }
  axes.push_back(spec.strided ? channels : channels + 1);
  auto split = spec.strided ? mx::Shape{-1, spec.groups}
                            : mx::Shape{spec.groups, x.shape(-1) / spec.groups};
  return {mx::unflatten(x, -1, std::move(split), s), axes};
}

} // namespace

Arrays fallback_group_norm(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream s) {
  GroupNormInputs in(spec, inputs.data());
  auto y = as_float(in.x, s);
  auto rstd_of = [&](const array& variance) {
    return mx::rsqrt(mx::add(variance, array(spec.eps), s), s);
  };
  OptionalArray statistics;
  if (spec.running) {
    y = mx::subtract(y, as_float(*in.mean, s), s);
    y = mx::multiply(y, rstd_of(as_float(*in.variance, s)), s);
  } else {
    auto [d, axes] = in_groups(spec, y, s);
    auto mean_of = [&](const array& a) {
      return mx::mean(a, axes, /* keepdims= */ true, s);
    };
    // Of a large mean the rounded one is not enough.
    auto mean = mean_of(d);
    d = mx::subtract(d, mean, s);
    auto rest = mean_of(d);
    d = mx::subtract(d, rest, s);
    auto variance = mean_of(mx::square(d, s));
    d = mx::multiply(d, rstd_of(variance), s);
    y = spec.one_channel_each() ? d : mx::flatten(d, -2, -1, s);
    auto by_group = [&](const array& a) {
      auto groups = mx::squeeze(a, axes, s);
      return spec.batch ? mx::expand_dims(groups, 0, s) : groups;
    };
    statistics =
        mx::stack({by_group(mean), by_group(rest), by_group(variance)}, 0, s);
  }
  if (in.weight) {
    y = mx::multiply(y, as_float(*in.weight, s), s);
  }
  if (in.bias) {
    y = mx::add(y, as_float(*in.bias, s), s);
  }
  if (spec.activation != Activation::None) {
    y = activated(spec.activation, y, s);
  }
  Arrays outputs{mx::astype(y, dtype, s)};
  if (statistics) {
    outputs.push_back(*statistics);
  }
  return outputs;
}

} // namespace mlx_norms
