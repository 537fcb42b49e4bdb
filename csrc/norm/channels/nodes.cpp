// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/channels/nodes.h"

#include "csrc/common/backend.h"
#include "csrc/cpu/settings.h"
#include "csrc/norm/channels/self_check.h"
#include "csrc/norm/fallback.h"

namespace mlx_norms {

namespace {

array as_rows(const array& a, int axis, mx::Stream s) {
  return mx::moveaxis(a, axis, -1, s);
}

array as_channels(const array& a, int axis, mx::Stream s) {
  return mx::contiguous(
      mx::moveaxis(a, -1, axis, s), /* allow_col_major= */ false, s);
}

} // namespace

array fallback_channel_norm(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream s) {
  auto rows = inputs;
  rows[0] = as_rows(inputs[0], axis, s);
  auto y = fallback_norm(spec, dtype, NormInputs(spec, rows.data()), s)[0];
  return as_channels(y, axis, s);
}

Arrays fallback_channel_norm_vjp(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream s) {
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

array channel_norm_node(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  auto shape = inputs[0].shape();
  auto node = std::make_shared<ChannelNorm>(stream, spec, axis, dtype);
  return array(std::move(shape), dtype, std::move(node), std::move(inputs));
}

Arrays channel_norm_vjp_node(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<ChannelNormVJP>(stream, spec, axis, dtypes);
  auto shapes = node->output_shapes(inputs);
  return array::make_arrays(
      std::move(shapes), dtypes, std::move(node), std::move(inputs));
}

array make_channel_norm(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  if (backend_of(stream) == Backend::Cpu) {
    cpu::check_settings();
  }
  auto kernel_agrees = [&] {
    return channels_agree(spec, axis, dtype, inputs, stream);
  };
  if (!runs_kernels(stream, kernel_agrees)) {
    return fallback_channel_norm(spec, axis, dtype, inputs, stream);
  }
  return channel_norm_node(spec, axis, dtype, std::move(inputs), stream);
}

Arrays make_channel_norm_vjp(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream) {
  auto kernel_agrees = [&] {
    return channels_agree(spec, axis, dtypes, inputs, stream);
  };
  if (!runs_kernels(stream, kernel_agrees)) {
    return fallback_channel_norm_vjp(spec, axis, dtypes, inputs, stream);
  }
  return channel_norm_vjp_node(spec, axis, dtypes, std::move(inputs), stream);
}

} // namespace mlx_norms
