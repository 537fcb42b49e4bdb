// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/channels/self_check.h"

#include <algorithm>

#include "csrc/norm/channels/geometry.h"
#include "csrc/norm/channels/nodes.h"
#include "csrc/norm/self_check.h"

namespace mlx_norms {

namespace {

// Arrays like these inputs, of few samples of few places.
Arrays few_places(const Arrays& inputs, int axis, int samples, mx::Stream s) {
  int channels = inputs[0].shape(axis);
  // As many places as have the same vectors and threads, but few.
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

self_check::Key
key_of(const char* op, const NormSpec& spec, int axis, const Arrays& inputs) {
  std::vector<int64_t> numbers{
      inputs[0].shape(axis), places_like(inner_size(inputs[0], axis))};
  append_flags(spec, numbers);
  for (const auto& input : inputs) {
    numbers.push_back(static_cast<int64_t>(input.dtype().val()));
  }
  return {op, std::move(numbers)};
}

} // namespace

bool channels_agree(
    const NormSpec& spec,
    int axis,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].size() == 0) {
    return true;
  }
  auto key = key_of("channel_norm", spec, axis, inputs);
  key.numbers.push_back(static_cast<int64_t>(dtype.val()));
  auto flags = flags_of(spec);
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) { return few_places(inputs, axis, 2, s); },
        [&](Arrays few, mx::Stream s) -> Arrays {
          return {channel_norm_node(flags, -2, dtype, std::move(few), s)};
        },
        [&](const Arrays& few, mx::Stream s) -> Arrays {
          return {fallback_channel_norm(flags, -2, dtype, few, s)};
        },
        /* donates= */ true};
  };
  return self_check::agrees(std::move(key), stream.device, sample, [&] {
    return std::string("of ") + ChannelNorm(stream, spec, axis, dtype).name() +
        " " + self_check::described(inputs, dtype);
  });
}

bool channels_agree(
    const NormVJPSpec& spec,
    int axis,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].size() == 0) {
    return true;
  }
  auto key = key_of("channel_norm_vjp", spec.norm, axis, inputs);
  for (auto flag : {spec.input, spec.weight, spec.bias}) {
    key.numbers.push_back(flag);
  }
  for (auto dtype : dtypes) {
    key.numbers.push_back(static_cast<int64_t>(dtype.val()));
  }
  auto flags = spec;
  flags.norm = flags_of(spec.norm);
  auto sample = [&] {
    return self_check::Sample{
        // Enough samples that several partial sums are added up.
        [&](mx::Stream s) { return few_places(inputs, axis, 5, s); },
        [&](Arrays few, mx::Stream s) {
          return channel_norm_vjp_node(flags, -2, dtypes, std::move(few), s);
        },
        [&](const Arrays& few, mx::Stream s) {
          return fallback_channel_norm_vjp(flags, -2, dtypes, few, s);
        },
        /* donates= */ true};
  };
  return self_check::agrees(std::move(key), stream.device, sample, [&] {
    return std::string("of ") +
        ChannelNormVJP(stream, spec, axis, dtypes).name() + " " +
        self_check::described(inputs, dtypes[0]);
  });
}

} // namespace mlx_norms
