// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/channels/primitive.h"

#include <algorithm>

#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/norm/channels/nodes.h"
#include "csrc/norm/gating.h"
#include "csrc/norm/split.h"

namespace mlx_norms {

namespace {

Function
fallback_of(const NormSpec& spec, int axis, mx::Dtype dtype, mx::Stream s) {
  return [=](const Arrays& in) -> Arrays {
    return {fallback_channel_norm(spec, axis, dtype, in, s)};
  };
}

Function fallback_of(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    mx::Stream s) {
  return [=](const Arrays& in) {
    return fallback_channel_norm_vjp(spec, axis, dtypes, in, s);
  };
}

// Moves the batch axes of x and, if there is one, the cotangent to the front.
Arrays batch_of(
    const Arrays& inputs,
    const std::vector<int>& axes,
    bool cotangent,
    mx::Stream s) {
  auto batch = inputs;
  Arrays of_x{inputs.front()};
  std::vector<int> of_axes{axes.front()};
  if (cotangent) {
    of_x.push_back(inputs.back());
    of_axes.push_back(axes.back());
  }
  of_x = with_leading_batch(of_x, of_axes, s);
  batch.front() = of_x.front();
  if (cotangent) {
    batch.back() = of_x.back();
  }
  return batch;
}

} // namespace

Arrays ChannelNorm::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = fallback_of(spec_, axis_, dtype_, stream());
  return jvp_of(f, primals, tangents, argnums);
}

Arrays ChannelNorm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  NormPositions at(spec_, 0);
  auto wanted = [&](int i) {
    return std::find(argnums.begin(), argnums.end(), i) != argnums.end();
  };
  auto plain = without_gate(spec_);
  auto cotangent = mx::astype(cotangents[0], dtype_, stream());
  if (spec_.is_gated()) {
    // That of the norm is multiplied by the activation's slope at its result.
    auto y = make_channel_norm(plain, axis_, mx::float32, primals, stream());
    cotangent = mx::multiply(
        mx::astype(cotangent, mx::float32, stream()),
        slope(spec_.activation, y, stream()),
        stream());
  }
  NormVJPSpec spec{
      .norm = plain,
      .input = wanted(at.x),
      .weight = wanted(at.weight),
      .bias = wanted(at.bias)};
  spec.norm.bias = false;
  Arrays inputs{primals[at.x]};
  if (spec_.weight) {
    inputs.push_back(primals[at.weight]);
  }
  inputs.push_back(std::move(cotangent));
  std::vector<int> order; // of the gradients
  for (int i : {at.x, at.weight, at.bias}) {
    if (wanted(i)) {
      order.push_back(i);
    }
  }
  std::vector<mx::Dtype> dtypes;
  for (int i : order) {
    dtypes.push_back(primals[i].dtype());
  }
  auto found =
      make_channel_norm_vjp(spec, axis_, dtypes, std::move(inputs), stream());
  Arrays gradients;
  for (int i : argnums) {
    auto place = std::find(order.begin(), order.end(), i) - order.begin();
    gradients.push_back(found[place]);
  }
  return gradients;
}

std::pair<Arrays, std::vector<int>> ChannelNorm::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  bool parameters = std::any_of(
      axes.begin() + 1, axes.end(), [](int axis) { return axis >= 0; });
  if (parameters) { // the kernel accepts one weight
    auto f = fallback_of(spec_, axis_, dtype_, stream());
    return with_leading_axes(mx::vmap(f, axes)(inputs));
  }
  auto batch = batch_of(inputs, axes, /* cotangent= */ false, stream());
  return with_leading_axes(
      {channel_norm_node(spec_, axis_, dtype_, std::move(batch), stream())});
}

bool ChannelNorm::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const ChannelNorm&>(other);
  return spec_ == o.spec_ && axis_ == o.axis_ && dtype_ == o.dtype_;
}

void ChannelNorm::check_shapes(const Arrays& inputs) const {
  check_channels(name(), axis_, NormInputs(spec_, inputs.data()));
}

std::vector<mx::Shape> ChannelNorm::output_shapes(const Arrays& inputs) {
  return {inputs[0].shape()};
}

Arrays ChannelNormVJP::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = fallback_of(spec_, axis_, dtypes_, stream());
  return jvp_of(f, primals, tangents, argnums);
}

Arrays ChannelNormVJP::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  auto f = fallback_of(spec_, axis_, dtypes_, stream());
  return vjp_of(f, primals, cotangents, argnums);
}

std::pair<Arrays, std::vector<int>> ChannelNormVJP::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  // The kernel accepts one weight, and sums over all of a batch.
  if ((spec_.norm.weight && axes[1] >= 0) || spec_.weight || spec_.bias) {
    auto f = fallback_of(spec_, axis_, dtypes_, stream());
    return with_leading_axes(mx::vmap(f, axes)(inputs));
  }
  auto batch = batch_of(inputs, axes, /* cotangent= */ true, stream());
  return with_leading_axes(
      channel_norm_vjp_node(spec_, axis_, dtypes_, std::move(batch), stream()));
}

bool ChannelNormVJP::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const ChannelNormVJP&>(other);
  return spec_ == o.spec_ && axis_ == o.axis_ && dtypes_ == o.dtypes_ &&
      merging_.into(o.merging_);
}

void ChannelNormVJP::check_shapes(const Arrays& inputs) const {
  NormVJPInputs in(spec_.norm, inputs.data());
  check_same_shape(name(), "cotangent", in.cotangent, in.s);
  check_channels(name(), axis_, {in.s, nullptr, in.weight, nullptr});
}

std::vector<mx::Shape> ChannelNormVJP::output_shapes(const Arrays& inputs) {
  const auto& x = inputs[0];
  std::vector<mx::Shape> shapes;
  if (spec_.input) {
    shapes.push_back(x.shape());
  }
  shapes.insert(shapes.end(), spec_.weight + spec_.bias, {x.shape(axis_)});
  return shapes;
}

} // namespace mlx_norms
