// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/channels/channel_norm.h"

#include "csrc/common/activations.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/self_check.h"
#include "csrc/norm/channels/checks.h"
#include "csrc/norm/channels/geometry.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/norm.h"
#include "csrc/op/node.h"

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
    auto shape = parameter ? mx::Shape{channels}
                           : mx::Shape{2, samples / 2, channels, inner};
    few.push_back(
        self_check::values(
            shape, inputs[i].dtype(), 17 * i + 1, /* large= */ false, s));
  }
  return few;
}

} // namespace

void ChannelNorm::check(const Arrays& inputs) const {
  check_channels(name(), axis, NormInputs(spec.operands, inputs.data()));
}

Arrays ChannelNorm::fallback(const Arrays& inputs, mx::Stream s) const {
  auto rows = inputs;
  rows[0] = as_rows(inputs[0], axis, s);
  NormInputs in(spec.operands, rows.data());
  auto y = fallback_norm(spec, dtypes[0], in, s)[0];
  return {as_channels(y, axis, s)};
}

void ChannelNorm::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  append_columns(inputs, axis, numbers);
  spec.append_key(numbers);
}

OpPtr ChannelNorm::sampled(const Arrays&, mx::Stream) const {
  return shared(ChannelNorm(spec.flags(), -2, dtypes[0]));
}

Arrays ChannelNorm::sample(const Arrays& inputs, mx::Stream s) const {
  return few_places(inputs, axis, 4, s);
}

Arrays ChannelNorm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&,
    mx::Stream s) const {
  Operands wanted;
  for (int i : argnums) {
    wanted.set(spec.operands.at(i));
  }
  auto plain = spec.without_gate();
  auto cotangent = mx::astype(cotangents[0], dtypes[0], s);
  if (spec.is_gated()) {
    // That of the norm is multiplied by the activation's slope at its result.
    auto y = make(ChannelNorm(plain, axis, mx::float32), primals, s)[0];
    cotangent = mx::multiply(
        mx::astype(cotangent, mx::float32, s), slope(spec.activation, y, s), s);
  }
  NormInputs in(spec.operands, primals.data());
  ChannelNormVJP gradient(plain, wanted, axis, {});
  for (auto operand : wanted) {
    gradient.dtypes.push_back(in[operand]->dtype());
  }
  in[kBias] = nullptr;
  in[kCotangent] = &cotangent;
  gradient.norm.operands = in.present();
  auto found = make(std::move(gradient), in.arrays(), s);
  Arrays gradients;
  for (int i : argnums) {
    gradients.push_back(found[wanted.index_of(spec.operands.at(i))]);
  }
  return gradients;
}

// The kernel accepts one weight.
Call<OpPtr> ChannelNorm::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (any_batched(axes, 1, axes.size())) {
    return {};
  }
  auto batch = inputs;
  batch[0] = with_leading_axis(inputs[0], axes[0], s);
  return {copy(), std::move(batch)};
}

void ChannelNormVJP::check(const Arrays& inputs) const {
  NormInputs in(norm.operands, inputs.data());
  check_same_shape(name(), "cotangent", *in[kCotangent], in.x());
  check_channels(name(), axis, in);
}

Arrays ChannelNormVJP::fallback(const Arrays& inputs, mx::Stream s) const {
  auto rows = inputs;
  rows.front() = as_rows(inputs.front(), axis, s);
  rows.back() = as_rows(inputs.back(), axis, s);
  NormInputs in(norm.operands, rows.data());
  auto gradients = fallback_gradients(norm, in, wanted, s);
  if (auto& x = gradients[kX]) {
    x = as_channels(*x, axis, s);
  }
  return in_order(gradients, wanted, dtypes, s);
}

void ChannelNormVJP::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  append_columns(inputs, axis, numbers);
  norm.append_key(numbers);
  numbers.push_back(wanted.bits());
}

OpPtr ChannelNormVJP::sampled(const Arrays&, mx::Stream) const {
  return shared(ChannelNormVJP(norm.flags(), wanted, -2, dtypes));
}

// Of so many samples that several partial sums are added up.
Arrays ChannelNormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  return few_places(inputs, axis, 6, s);
}

// The kernel accepts one weight, and sums over all of a batch.
Call<OpPtr> ChannelNormVJP::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if ((norm.has(kWeight) && axes[1] >= 0) || wanted.has_any({kWeight, kBias})) {
    return {};
  }
  auto batch = inputs;
  auto mapped = with_leading_batch(
      {inputs.front(), inputs.back()}, {axes.front(), axes.back()}, s);
  batch.front() = std::move(mapped[0]);
  batch.back() = std::move(mapped[1]);
  return {copy(), std::move(batch)};
}

array make_channel_norm(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream s) {
  return make(ChannelNorm(spec, axis, dtype), std::move(inputs), s)[0];
}

} // namespace mlx_norms
