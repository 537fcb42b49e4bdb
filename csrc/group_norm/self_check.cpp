// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/self_check.h"

#include "csrc/common/self_check.h"
#include "csrc/group_norm/fallback.h"
#include "csrc/group_norm/nodes.h"
#include "csrc/group_norm/plan.h"

namespace mlx_norms {

namespace {

// Some chunks of the kernels, the last of which has one to three positions more
// for each thread than those that are taken together.
constexpr int kPositions = 1240;

// What specializes the kernels.
std::vector<int64_t> numbers_of(
    const GroupNormSpec& spec,
    const Arrays& inputs) {
  auto channels = inputs[0].shape(-1);
  std::vector<int64_t> numbers{
      channels % 8 == 0       ? 8
          : channels % 4 == 0 ? 4
                              : 1,
      spec.weight,
      spec.bias,
      spec.running,
      spec.strided,
      spec.one_channel_each(),
      static_cast<int64_t>(spec.activation)};
  for (const auto& a : inputs) {
    numbers.push_back(static_cast<int64_t>(a.dtype().val()));
  }
  return numbers;
}

// As spec, on few channels of the same alignment.
GroupNormSpec like(const GroupNormSpec& spec) {
  auto few = spec;
  few.eps = 1e-5f;
  few.groups = spec.groups ? 2 : 0;
  few.sample_axes = 1;
  return few;
}

mx::Shape shape_like(const array& x) {
  auto channels = x.shape(-1);
  return {2, kPositions, channels % 8 == 0 ? 16 : channels % 4 == 0 ? 12 : 10};
}

// The norm's inputs.
Arrays samples_of(
    const GroupNormSpec& spec,
    const mx::Shape& x,
    const Arrays& inputs,
    mx::Stream s) {
  Arrays few;
  for (int i = 0; i <= spec.n_parameters(); ++i) {
    auto values = self_check::values(
        i == 0 ? x : mx::Shape{x.back()},
        inputs[i].dtype(),
        17 * i + 1,
        false,
        s);
    bool variance = spec.running && i == spec.n_parameters();
    few.push_back(variance ? mx::square(values, s) : values);
  }
  return few;
}

} // namespace

bool agrees(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].size() == 0) {
    return true;
  }
  auto numbers = numbers_of(spec, inputs);
  numbers.push_back(static_cast<int64_t>(dtype.val()));
  auto few = like(spec);
  auto shape = shape_like(inputs[0]);
  if (auto held = held_geometry(spec, inputs[0], stream)) {
    // One threadgroup of each sample.
    numbers.insert(numbers.end(), {held->width, held->vectors, held->differ});
    few.groups = spec.groups ? held->groups : 0;
    shape = {2, held->positions, held->lanes() * held->width};
  }
  // Of the statistics, the mean's parts are another GPU's or sum's.
  auto results = [](Arrays outputs) { return Arrays{outputs[0]}; };
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) { return samples_of(few, shape, inputs, s); },
        [&](Arrays arrays, mx::Stream s) {
          return results(group_norm_node(few, dtype, std::move(arrays), s));
        },
        [&](const Arrays& arrays, mx::Stream s) {
          return results(fallback_group_norm(few, dtype, arrays, s));
        },
        /* donates= */ true};
  };
  return self_check::agrees(
      {"group_norm", std::move(numbers)}, stream.device, sample, [&] {
        return self_check::described("mlx_norms::GroupNorm", inputs, dtype);
      });
}

bool agrees(
    const GroupNormVJPSpec& spec,
    const Arrays& inputs,
    mx::Stream stream) {
  if (inputs[0].size() == 0) {
    return true;
  }
  auto numbers = numbers_of(spec.norm, inputs);
  numbers.push_back(spec.input);
  numbers.push_back(spec.sums);
  numbers.push_back(static_cast<int64_t>(spec.sums_dtype.val()));
  auto few = spec;
  few.norm = like(spec.norm);
  auto sample = [&] {
    return self_check::Sample{
        [&](mx::Stream s) {
          auto arrays = samples_of(few.norm, shape_like(inputs[0]), inputs, s);
          auto x = arrays[0];
          if (!few.norm.running) {
            auto outputs = fallback_group_norm(few.norm, x.dtype(), arrays, s);
            arrays.insert(arrays.end(), outputs.begin() + 1, outputs.end());
          }
          arrays.push_back(
              self_check::values(
                  x.shape(), inputs.back().dtype(), 99, false, s));
          return arrays;
        },
        [&](Arrays arrays, mx::Stream s) {
          return group_norm_vjp_node(few, std::move(arrays), s);
        },
        [&](const Arrays& arrays, mx::Stream s) {
          return fallback_group_norm_vjp(few, arrays, s);
        },
        /* donates= */ true};
  };
  return self_check::agrees(
      {"group_norm_vjp", std::move(numbers)}, stream.device, sample, [&] {
        return self_check::described(
            "mlx_norms::GroupNormVJP", inputs, inputs[0].dtype());
      });
}

} // namespace mlx_norms
