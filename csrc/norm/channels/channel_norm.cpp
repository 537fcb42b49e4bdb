// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/channels/channel_norm.h"

#include "csrc/common/checks.h"
#include "csrc/norm/channels/checks.h"
#include "csrc/norm/channels/geometry.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/gating.h"
#include "csrc/norm/self_check.h"
#include "csrc/norm/split.h"

namespace mlx_norms {

namespace {

array as_rows(const array& a, int axis, mx::Stream s) {
  return mx::moveaxis(a, axis, -1, s);
}

array as_channels(const array& a, int axis, mx::Stream s) {
  return mx::contiguous(
      mx::moveaxis(a, -1, axis, s), /* allow_col_major= */ false, s);
}

void append_columns(
    const Arrays& inputs,
    int axis,
    std::vector<int64_t>& numbers) {
  numbers.push_back(inputs[0].shape(axis));
  numbers.push_back(places_like(inner_size(inputs[0], axis)));
}

// Arrays like these inputs, of few samples, with as many places as have the
// same vectors and threads, but few.
Arrays few_places(const Arrays& inputs, int axis, int samples, mx::Stream s) {
  int channels = inputs[0].shape(axis);
  int inner = places_like(inner_size(inputs[0], axis));
  Arrays few;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool parameter = inputs[i].ndim() == 1;
    auto shape =
        parameter ? mx::Shape{channels} : mx::Shape{samples, channels, inner};
    few.push_back(
        self_check::values(
            shape, inputs[i].dtype(), 17 * i + 1, /* large= */ false, s));
  }
  return few;
}

} // namespace

void ChannelNorm::check(const Arrays& inputs) const {
  check_channels(name(), axis, NormInputs(spec, inputs.data()));
}

Arrays ChannelNorm::fallback(const Arrays& inputs, mx::Stream s) const {
  auto rows = inputs;
  rows[0] = as_rows(inputs[0], axis, s);
  auto y = fallback_norm(spec, dtype, NormInputs(spec, rows.data()), s)[0];
  return {as_channels(y, axis, s)};
}

void ChannelNorm::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  append_columns(inputs, axis, numbers);
  append_flags(spec, numbers);
}

ChannelNorm ChannelNorm::sampled(const Arrays&, mx::Stream) const {
  return {flags_of(spec), -2, dtype};
}

Arrays ChannelNorm::sample(const Arrays& inputs, mx::Stream s) const {
  return few_places(inputs, axis, 2, s);
}

Arrays ChannelNorm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&,
    mx::Stream s) const {
  NormPositions at(spec, 0);
  auto wanted = [&](int i) {
    return std::find(argnums.begin(), argnums.end(), i) != argnums.end();
  };
  auto plain = without_gate(spec);
  auto cotangent = mx::astype(cotangents[0], dtype, s);
  if (spec.is_gated()) {
    // That of the norm is multiplied by the activation's slope at its result.
    auto y = make(ChannelNorm{plain, axis, mx::float32}, primals, s);
    cotangent = mx::multiply(
        mx::astype(cotangent, mx::float32, s), slope(spec.activation, y, s), s);
  }
  ChannelNormVJP gradient{
      {.norm = plain,
       .input = wanted(at.x),
       .weight = wanted(at.weight),
       .bias = wanted(at.bias)},
      axis,
      {}};
  gradient.spec.norm.bias = false;
  Arrays inputs{primals[at.x]};
  if (spec.weight) {
    inputs.push_back(primals[at.weight]);
  }
  inputs.push_back(std::move(cotangent));
  std::vector<int> order; // of the gradients
  for (int i : {at.x, at.weight, at.bias}) {
    if (wanted(i)) {
      order.push_back(i);
      gradient.dtypes.push_back(primals[i].dtype());
    }
  }
  auto found = make(std::move(gradient), std::move(inputs), s);
  Arrays gradients;
  for (int i : argnums) {
    auto place = std::find(order.begin(), order.end(), i) - order.begin();
    gradients.push_back(found[place]);
  }
  return gradients;
}

// The kernel accepts one weight.
std::optional<Call<ChannelNorm>> ChannelNorm::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (any_batched(axes, 1, axes.size())) {
    return std::nullopt;
  }
  auto batch = inputs;
  batch[0] = with_leading_axis(inputs[0], axes[0], s);
  return {{*this, std::move(batch)}};
}

void ChannelNormVJP::check(const Arrays& inputs) const {
  NormVJPInputs in(spec.norm, inputs.data());
  check_same_shape(name(), "cotangent", in.cotangent, in.s);
  check_channels(name(), axis, {in.s, nullptr, in.weight, nullptr});
}

std::vector<mx::Shape> ChannelNormVJP::shapes(const Arrays& inputs) const {
  const auto& x = inputs[0];
  std::vector<mx::Shape> shapes;
  if (spec.input) {
    shapes.push_back(x.shape());
  }
  shapes.insert(shapes.end(), spec.weight + spec.bias, {x.shape(axis)});
  return shapes;
}

Arrays ChannelNormVJP::fallback(const Arrays& inputs, mx::Stream s) const {
  auto rows = inputs;
  rows.front() = as_rows(inputs.front(), axis, s);
  rows.back() = as_rows(inputs.back(), axis, s);
  NormVJPInputs in(spec.norm, rows.data());
  auto gradients = fallback_norm_vjp(spec, dtypes, in, s);
  if (spec.input) {
    gradients[0] = as_channels(gradients[0], axis, s);
  }
  return gradients;
}

void ChannelNormVJP::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  append_columns(inputs, axis, numbers);
  append_flags(spec.norm, numbers);
  for (auto flag : {spec.input, spec.weight, spec.bias}) {
    numbers.push_back(flag);
  }
}

ChannelNormVJP ChannelNormVJP::sampled(const Arrays&, mx::Stream) const {
  auto flags = spec;
  flags.norm = flags_of(spec.norm);
  return {flags, -2, dtypes};
}

// Of so many samples that several partial sums are added up.
Arrays ChannelNormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  return few_places(inputs, axis, 5, s);
}

// The kernel accepts one weight, and sums over all of a batch.
std::optional<Call<ChannelNormVJP>> ChannelNormVJP::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if ((spec.norm.weight && axes[1] >= 0) || spec.weight || spec.bias) {
    return std::nullopt;
  }
  auto batch = inputs;
  auto mapped = with_leading_batch(
      {inputs.front(), inputs.back()}, {axes.front(), axes.back()}, s);
  batch.front() = std::move(mapped[0]);
  batch.back() = std::move(mapped[1]);
  return {{*this, std::move(batch)}};
}

} // namespace mlx_norms
