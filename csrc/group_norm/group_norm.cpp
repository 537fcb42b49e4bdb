// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/group_norm.h"

#include <numeric>

#include "csrc/common/checks.h"
#include "csrc/common/sum.h"
#include "csrc/op/define_node.h"

namespace mlx_norms {

namespace {

void check_parameters(const GroupNormSpec& spec, const Arrays& inputs) {
  const auto& x = inputs[0];
  GroupNormInputs in(spec, inputs.data());
  auto check = [&](const char* parameter, const array* a) {
    if (a) {
      check_vector("group_norm", parameter, *a, x);
    }
  };
  check("weight", in.weight);
  check("bias", in.bias);
  check("mean", in.mean);
  check("var", in.variance);
  if (spec.groups && x.shape(-1) % spec.groups != 0) {
    refuse("group_norm", "num_groups must divide the number of channels.");
  }
}

// [samples..., last]
mx::Shape per_sample(const GroupNormSpec& spec, const array& x, int last) {
  auto begin = x.shape().begin();
  mx::Shape shape(begin, begin + spec.sample_axes);
  shape.push_back(last);
  return shape;
}

// The dtype of the parameters' sums: the parameters', if they are gradients as
// they are.
mx::Dtype sums_dtype_of(
    const GroupNormSpec& spec,
    const Arrays& primals,
    const std::vector<int>& argnums,
    mx::Stream stream) {
  if (spec.sample_axes > 0 || backend_of(stream) == Backend::Cpu) {
    return mx::float32;
  }
  std::optional<mx::Dtype> dtype;
  for (int i : argnums) {
    if (i == 0) {
      continue;
    }
    bool is_sum = i <= spec.weight + spec.bias;
    if (!is_sum || (dtype && *dtype != primals[i].dtype())) {
      return mx::float32;
    }
    dtype = primals[i].dtype();
  }
  return dtype.value_or(mx::float32);
}

// Some chunks of the kernels, the last of which has one to three positions more
// for each thread than those that are taken together.
constexpr int kPositions = 1240;

// What specializes the kernels of both.
void append_flags(
    const GroupNormSpec& spec,
    const array& x,
    std::vector<int64_t>& numbers) {
  auto channels = x.shape(-1);
  numbers.push_back(channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : 1);
  for (auto flag :
       {spec.weight,
        spec.bias,
        spec.running,
        spec.strided,
        spec.one_channel_each()}) {
    numbers.push_back(flag);
  }
  numbers.push_back(static_cast<int64_t>(spec.activation));
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

mx::Shape GroupNorm::shape(const Arrays& inputs, size_t i) const {
  const auto& x = inputs[0];
  return i == 0 ? x.shape() : per_sample(spec, x, spec.groups_of(x));
}

void GroupNorm::check(const Arrays& inputs) const {
  check_parameters(spec, inputs);
}

void GroupNorm::append_key(
    const Arrays& inputs,
    mx::Stream s,
    std::vector<int64_t>& numbers) const {
  append_flags(spec, inputs[0], numbers);
  if (auto held = held_geometry(spec, inputs[0], s)) {
    numbers.insert(numbers.end(), {held->width, held->vectors, held->differ});
  }
}

GroupNorm GroupNorm::sampled(const Arrays& inputs, mx::Stream s) const {
  auto few = like(spec);
  if (auto held = held_geometry(spec, inputs[0], s)) {
    few.groups = spec.groups ? held->groups : 0;
  }
  return {few, dtypes[0]};
}

Arrays GroupNorm::sample(const Arrays& inputs, mx::Stream s) const {
  auto shape = shape_like(inputs[0]);
  if (auto held = held_geometry(spec, inputs[0], s)) {
    // One threadgroup of each sample.
    shape = {2, held->positions, held->lanes() * held->width};
  }
  return samples_of(spec, shape, inputs, s);
}

Arrays GroupNorm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs,
    mx::Stream s) const {
  bool of_statistics =
      std::any_of(cotangents.begin() + 1, cotangents.end(), [](const array& a) {
        return !is_made_of_zeros(a);
      });
  if (of_statistics) {
    return vjp_of(steps_of(*this, s), primals, cotangents, argnums);
  }
  GroupNormInputs in(spec, primals.data());
  GroupNormVJPSpec vjp{.norm = spec};
  for (int i : argnums) {
    (i == 0 ? vjp.input : vjp.sums) = true;
  }
  vjp.sums_dtype = sums_dtype_of(spec, primals, argnums, s);
  auto inputs = primals;
  inputs.insert(inputs.end(), outputs.begin() + 1, outputs.end());
  inputs.push_back(cotangents[0]);
  auto results =
      make(GroupNormVJP(vjp, primals[0].dtype()), std::move(inputs), s);
  OptionalArray of_bias, of_weight; // over all samples
  if (vjp.sums) {
    std::vector<int> samples(spec.sample_axes);
    std::iota(samples.begin(), samples.end(), 0);
    auto over_all = [&](const array& sums) {
      return sum_over(sums, samples, /* keepdims= */ false, s);
    };
    of_bias = over_all(results[vjp.input]);
    of_weight = over_all(results[vjp.input + 1]);
  }
  Arrays gradients;
  for (int i : argnums) {
    const auto* primal = &primals[i];
    if (i == 0) {
      gradients.push_back(results[0]);
      continue;
    }
    auto gradient = primal == in.weight ? *of_weight : *of_bias;
    if (primal == in.mean || primal == in.variance) {
      auto variance = mx::astype(*in.variance, mx::float32, s);
      auto square = mx::reciprocal(mx::add(variance, array(spec.eps), s), s);
      auto by = primal == in.mean ? mx::negative(mx::sqrt(square, s), s)
                                  : mx::multiply(square, array(-0.5f), s);
      gradient = mx::multiply(primal == in.mean ? *of_bias : *of_weight, by, s);
      if (in.weight) {
        gradient =
            mx::multiply(gradient, mx::astype(*in.weight, mx::float32, s), s);
      }
    }
    gradients.push_back(mx::astype(gradient, primal->dtype(), s));
  }
  return gradients;
}

std::optional<Call<GroupNorm>> GroupNorm::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (any_batched(axes, 1, axes.size())) {
    return std::nullopt;
  }
  Call<GroupNorm> call{*this, inputs};
  call.inputs[0] = with_leading_axis(inputs[0], axes[0], s);
  call.op.spec.sample_axes += 1;
  return call;
}

mx::Shape GroupNormVJP::shape(const Arrays& inputs, size_t i) const {
  const auto& x = inputs[0];
  return spec.input && i == 0 ? x.shape()
                              : per_sample(spec.norm, x, x.shape(-1));
}

void GroupNormVJP::check(const Arrays& inputs) const {
  check_parameters(spec.norm, inputs);
  check_same_shape(name(), "cotangent", inputs.back(), inputs[0]);
}

void GroupNormVJP::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  append_flags(spec.norm, inputs[0], numbers);
  numbers.push_back(spec.input);
  numbers.push_back(spec.sums);
}

GroupNormVJP GroupNormVJP::sampled(const Arrays& inputs, mx::Stream) const {
  auto few = spec;
  few.norm = like(spec.norm);
  return {few, inputs[0].dtype()};
}

Arrays GroupNormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  auto norm = like(spec.norm);
  auto arrays = samples_of(norm, shape_like(inputs[0]), inputs, s);
  auto x = arrays[0];
  if (!norm.running) {
    auto outputs = GroupNorm(norm, x.dtype()).fallback(arrays, s);
    arrays.insert(arrays.end(), outputs.begin() + 1, outputs.end());
  }
  arrays.push_back(
      self_check::values(
          x.shape(), inputs.back().dtype(), 99, /* large= */ false, s));
  return arrays;
}

std::optional<Call<GroupNormVJP>> GroupNormVJP::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  int parameters = spec.norm.n_parameters();
  bool all = axes[0] >= 0;
  for (size_t i = 1 + parameters; i < axes.size(); ++i) {
    all = all && axes[i] >= 0;
  }
  if (!all || any_batched(axes, 1, 1 + parameters)) {
    return std::nullopt;
  }
  Call<GroupNormVJP> call{*this, inputs};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (axes[i] >= 0) {
      call.inputs[i] = mx::moveaxis(inputs[i], axes[i], 0, s);
    }
  }
  call.op.spec.norm.sample_axes += 1;
  return call;
}

MLX_NORMS_DEFINE_OP(GroupNorm)
MLX_NORMS_DEFINE_OP(GroupNormVJP)

} // namespace mlx_norms
