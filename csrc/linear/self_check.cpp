// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/self_check.h"

#include <cmath>

#include "csrc/common/self_check.h"
#include "csrc/linear/plan.h"

namespace mlx_norms {

namespace {

self_check::Key key_of(const NormLinearSpec& spec, const Arrays& inputs) {
  const auto& x = inputs[0];
  int length = x.shape(-1);
  std::vector<int64_t> numbers{
      length, static_cast<int64_t>(x.size() / length), spec.gated, spec.normed};
  spec.norm.append_key(numbers);
  for (const auto& a : inputs) {
    numbers.push_back(static_cast<int64_t>(a.dtype().val()));
  }
  for (const auto& p : spec.projections) {
    numbers.insert(numbers.end(), {p.bits, p.group_size, p.bias});
  }
  for (size_t i = spec.norm.n_inputs(); i < inputs.size(); ++i) {
    numbers.push_back(std::min(inputs[i].shape(0), kManyOutputs));
  }
  return {"norm_linear", std::move(numbers)};
}

// A weight like that of p, as it is stored, with no more outputs than make a
// difference. It is computed on the stream that uses it.
Arrays weight_like(
    const Projection& p,
    const array& weight,
    const array& x,
    uint64_t seed,
    mx::Stream s) {
  int length = x.shape(-1);
  float most = 1.0f / std::sqrt(static_cast<float>(length));
  auto w = mx::random::uniform(
      -most,
      most,
      {std::min(weight.shape(0), kManyOutputs), length},
      x.dtype(),
      mx::random::key(seed),
      s);
  if (!p.bits) {
    return {w};
  }
  return mx::quantize(w, p.group_size, p.bits, "affine", std::nullopt, s);
}

// Arrays like the inputs of a norm and its projections.
Arrays
arrays_like(const NormLinearSpec& spec, const Arrays& inputs, mx::Stream s) {
  Arrays like;
  const auto& x = inputs[0];
  auto length = x.shape(-1);
  int n_rows = x.size() / length;
  mx::Shape rows{n_rows, length};
  int outputs = inputs[spec.norm.n_inputs()].shape(0);
  mx::Shape products{n_rows, std::min(outputs, kManyOutputs)};
  for (int i = 0; i < spec.norm.n_inputs(); ++i) {
    bool parameter = i > spec.norm.has(kResidual);
    bool is_added = i == 1 && !spec.normed;
    like.push_back(
        self_check::values(
            parameter      ? mx::Shape{length}
                : is_added ? products
                           : rows,
            inputs[i].dtype(),
            17 * i + 1,
            /* large= */ false,
            s));
  }
  for (const auto& p : spec.projections) {
    auto first = like.size();
    auto weight = weight_like(p, inputs[first], x, first, s);
    like.insert(like.end(), weight.begin(), weight.end());
    if (p.bias) {
      const auto& bias = inputs[like.size()];
      mx::Shape shape{std::min(bias.shape(0), kManyOutputs)};
      like.push_back(self_check::values(shape, bias.dtype(), first, false, s));
    }
  }
  return like;
}

} // namespace

bool agrees(
    const NormLinearSpec& spec,
    const Arrays& inputs,
    mx::Stream stream) {
  auto flags = spec;
  flags.norm = spec.norm.flags();
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) { return arrays_like(flags, inputs, s); },
        [&](Arrays like, mx::Stream s) {
          return norm_linear_node(flags, std::move(like), s);
        },
        [&](const Arrays& like, mx::Stream s) {
          // MLX's quantized_matmul may sum in the dtype of its inputs.
          Arrays wide;
          for (const auto& a : like) {
            bool packed = a.dtype() == mx::uint32;
            wide.push_back(packed ? a : mx::astype(a, mx::float32, s));
          }
          return fallback_norm_linear(flags, wide, s);
        },
        /* donates= */ false};
  };
  return self_check::agrees(key_of(spec, inputs), stream.device, sample, [&] {
    return self_check::described(
        NormLinear(stream, spec).name(), inputs, inputs[0].dtype());
  });
}

} // namespace mlx_norms
