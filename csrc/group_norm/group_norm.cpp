// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/group_norm.h"

#include <algorithm>
#include <numeric>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/self_check.h"
#include "csrc/common/sum.h"
#include "csrc/gpu/integers.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

void check_parameters(const GroupNormSpec& spec, const Arrays& inputs) {
  const auto& x = inputs[0];
  NormInputs in(spec.operands, inputs.data());
  for (auto operand : spec.operands.without({kX})) {
    auto* argument = kOperandTraits[operand].name;
    check_vector("group_norm", argument, *in[operand], x);
  }
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
    auto operand = spec.operands.at(i);
    bool is_sum = operand == kWeight || operand == kBias;
    if (!is_sum || (dtype && *dtype != primals[i].dtype())) {
      return mx::float32;
    }
    dtype = primals[i].dtype();
  }
  return dtype.value_or(mx::float32);
}

// What specializes the kernels of both.
void append_flags(const GroupNormSpec& spec, std::vector<int64_t>& numbers) {
  spec.append_key(numbers);
  numbers.insert(numbers.end(), {spec.strided, spec.one_channel_each()});
}

// The sizes of a sample on which kernels depend.
struct Sizes {
  int channels;
  int positions;
  int groups;

  Sizes(int channels, int positions, int groups)
      : channels(channels),
        positions(positions),
        groups(groups) {}

  Sizes(const GroupNormSpec& spec, const array& x)
      : Sizes(x.shape(-1), 1, spec.groups_of(x)) {
    for (int i = spec.sample_axes; i + 1 < static_cast<int>(x.ndim()); ++i) {
      positions *= x.shape(i);
    }
  }

  int of_group() const {
    return channels / groups;
  }
  int64_t size() const {
    return int64_t{channels} * positions;
  }
  int alignment() const {
    return channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : 1;
  }
};

// These sizes, or one position more if there is an odd number of them.
template <typename F>
Sizes with_two_axes(const Sizes& sizes, F kernels) {
  auto even = sizes;
  even.positions += even.positions % 2;
  return kernels(even) == kernels(sizes) ? even : sizes;
}

// Few that have these sizes' kernels, which kernels(sizes) tells; else these.
// The last chunk of so many positions has one to three more for each thread
// than those that are taken together.
template <typename F>
Sizes few_of(const Sizes& sizes, F kernels) {
  auto wanted = kernels(sizes);
  int more = sizes.alignment() == 8 ? 8 : sizes.alignment() == 4 ? 4 : 2;
  for (int most = 8; most <= 2048; most *= 2) {
    int channels = most + more;
    for (int positions : {1240, 156, 62}) {
      for (int groups : {2, channels, channels / 2, 1}) {
        Sizes few(channels, positions, groups);
        if (few.size() < sizes.size() && kernels(few) == wanted) {
          return few;
        }
      }
    }
  }
  return with_two_axes(sizes, kernels);
}

// As spec, of such a sample.
GroupNormSpec like(const GroupNormSpec& spec, const Sizes& sizes) {
  auto few = spec;
  few.eps = 1e-5f;
  few.groups = spec.groups == 0 && sizes.of_group() == 1 ? 0 : sizes.groups;
  few.sample_axes = 1;
  return few;
}

// With two axes of positions, if they can be.
mx::Shape shape_of(const Sizes& sizes) {
  int inner = sizes.positions % 2 == 0 ? sizes.positions / 2 : sizes.positions;
  return {2, sizes.positions / inner, inner, sizes.channels};
}

// The norm's inputs.
Arrays samples_of(
    const GroupNormSpec& spec,
    const mx::Shape& x,
    const Arrays& inputs,
    mx::Stream s) {
  Arrays few;
  for (auto operand : spec.operands) {
    int i = few.size();
    auto values = self_check::values(
        operand == kX ? x : mx::Shape{x.back()},
        inputs[i].dtype(),
        17 * i + 1,
        false,
        s);
    few.push_back(operand == kVariance ? mx::square(values, s) : values);
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

namespace {

// Equal numbers: the same kernels.
std::vector<int64_t> kernels_of(
    const GroupNormSpec& spec,
    const Sizes& sizes,
    const array& x,
    mx::Stream s) {
  auto [channels, positions, groups] = sizes;
  std::vector<int64_t> numbers{sizes.alignment()};
  if (spec.running()) {
    return numbers;
  }
  auto held = HeldGeometry::choose(
      channels, positions, groups, spec.strided, x.itemsize(), backend_of(s));
  if (held) {
    numbers.insert(numbers.end(), {held->width, held->vectors, held->differ});
    return numbers;
  }
  SampleGeometry sample(channels, positions, x.itemsize());
  StatisticsGeometry statistics(sample, groups, spec.strided);
  numbers.insert(numbers.end(), {statistics.simds, std::min(sample.chunks, 2)});
  return numbers;
}

// Of so many of a sample's groups as one threadgroup holds, if it does.
Sizes few_of(const GroupNormSpec& spec, const array& x, mx::Stream s) {
  Sizes sizes(spec, x);
  auto kernels = [&](const Sizes& of) { return kernels_of(spec, of, x, s); };
  auto held = held_geometry(spec, x, s);
  if (!held) {
    return few_of(sizes, kernels);
  }
  return with_two_axes(
      {held->lanes() * held->width, held->positions, held->groups}, kernels);
}

} // namespace

void GroupNorm::append_key(
    const Arrays& inputs,
    mx::Stream s,
    std::vector<int64_t>& numbers) const {
  append_flags(spec, numbers);
  const auto& x = inputs[0];
  auto kernels = kernels_of(spec, Sizes(spec, x), x, s);
  numbers.insert(numbers.end(), kernels.begin(), kernels.end());
}

OpPtr GroupNorm::sampled(const Arrays& inputs, mx::Stream s) const {
  return shared(GroupNorm(like(spec, few_of(spec, inputs[0], s)), dtypes[0]));
}

Arrays GroupNorm::sample(const Arrays& inputs, mx::Stream s) const {
  auto shape = shape_of(few_of(spec, inputs[0], s));
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
    return Op::vjp(primals, cotangents, argnums, outputs, s);
  }
  NormInputs in(spec.operands, primals.data());
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
    auto gradient = primal == in[kWeight] ? *of_weight : *of_bias;
    if (primal == in[kMean] || primal == in[kVariance]) {
      auto variance = mx::astype(*in[kVariance], mx::float32, s);
      auto square = mx::reciprocal(mx::add(variance, array(spec.eps), s), s);
      auto by = primal == in[kMean] ? mx::negative(mx::sqrt(square, s), s)
                                    : mx::multiply(square, array(-0.5f), s);
      gradient =
          mx::multiply(primal == in[kMean] ? *of_bias : *of_weight, by, s);
      if (in[kWeight]) {
        gradient =
            mx::multiply(gradient, mx::astype(*in[kWeight], mx::float32, s), s);
      }
    }
    gradients.push_back(mx::astype(gradient, primal->dtype(), s));
  }
  return gradients;
}

Call<OpPtr> GroupNorm::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  if (any_batched(axes, 1, axes.size())) {
    return {};
  }
  auto op = *this;
  op.spec.sample_axes += 1;
  auto batch = inputs;
  batch[0] = with_leading_axis(inputs[0], axes[0], s);
  return {shared(std::move(op)), std::move(batch)};
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

namespace {

// As those of the norm, of its gradients.
std::vector<int64_t>
kernels_of(const GroupNormVJPSpec& spec, const Sizes& sizes, const array& x) {
  SampleGeometry sample(sizes.channels, sizes.positions, x.itemsize());
  SumsGeometry sums(sample, sizes.groups);
  if (spec.sums_at_once(sample.chunks, sizes.of_group())) {
    return {sizes.alignment()};
  }
  return {
      sizes.alignment(),
      sums.threads,
      sums.group_is_channel,
      std::min(sample.chunks, 2)};
}

Sizes few_of(const GroupNormVJPSpec& spec, const array& x) {
  return few_of(Sizes(spec.norm, x), [&](const Sizes& of) {
    return kernels_of(spec, of, x);
  });
}

} // namespace

void GroupNormVJP::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  append_flags(spec.norm, numbers);
  numbers.push_back(spec.input);
  numbers.push_back(spec.sums);
  const auto& x = inputs[0];
  auto kernels = kernels_of(spec, Sizes(spec.norm, x), x);
  numbers.insert(numbers.end(), kernels.begin(), kernels.end());
}

OpPtr GroupNormVJP::sampled(const Arrays& inputs, mx::Stream) const {
  auto few = spec;
  few.norm = like(spec.norm, few_of(spec, inputs[0]));
  return shared(GroupNormVJP(few, inputs[0].dtype()));
}

Arrays GroupNormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  auto sizes = few_of(spec, inputs[0]);
  auto norm = like(spec.norm, sizes);
  auto arrays = samples_of(norm, shape_of(sizes), inputs, s);
  auto x = arrays[0];
  if (!norm.running()) {
    auto outputs = GroupNorm(norm, x.dtype()).fallback(arrays, s);
    arrays.insert(arrays.end(), outputs.begin() + 1, outputs.end());
  }
  arrays.push_back(
      self_check::values(
          x.shape(), inputs.back().dtype(), 99, /* large= */ false, s));
  return arrays;
}

Call<OpPtr> GroupNormVJP::batched(
    const Arrays& inputs,
    const std::vector<int>& axes,
    mx::Stream s) const {
  int of_norm = spec.norm.n_inputs();
  bool all = axes[0] >= 0;
  for (size_t i = of_norm; i < axes.size(); ++i) {
    all = all && axes[i] >= 0;
  }
  if (!all || any_batched(axes, 1, of_norm)) {
    return {};
  }
  auto op = *this;
  op.spec.norm.sample_axes += 1;
  auto batch = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (axes[i] >= 0) {
      batch[i] = mx::moveaxis(inputs[i], axes[i], 0, s);
    }
  }
  return {shared(std::move(op)), std::move(batch)};
}

} // namespace mlx_norms
