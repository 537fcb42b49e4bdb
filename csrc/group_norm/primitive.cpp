// Copyright © 2026 mlx_norms contributors

#include "csrc/group_norm/primitive.h"

#include <algorithm>
#include <numeric>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/sum.h"
#include "csrc/cpu/settings.h"
#include "csrc/group_norm/fallback.h"
#include "csrc/group_norm/nodes.h"
#include "csrc/group_norm/self_check.h"

namespace mlx_norms {

namespace {

Function
fallback_of(const GroupNormSpec& spec, mx::Dtype dtype, mx::Stream stream) {
  return [=](const Arrays& inputs) {
    return fallback_group_norm(spec, dtype, inputs, stream);
  };
}

Function fallback_of(const GroupNormVJPSpec& spec, mx::Stream stream) {
  return [=](const Arrays& inputs) {
    return fallback_group_norm_vjp(spec, inputs, stream);
  };
}

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

bool any_batched(const std::vector<int>& axes, int begin, int end) {
  return std::any_of(axes.begin() + begin, axes.begin() + end, [](int axis) {
    return axis >= 0;
  });
}

} // namespace

Arrays group_norm_node(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<GroupNorm>(stream, spec, dtype);
  auto shapes = node->output_shapes(inputs);
  std::vector<mx::Dtype> dtypes{dtype};
  dtypes.resize(spec.n_outputs(), mx::float32);
  return array::make_arrays(std::move(shapes), dtypes, std::move(node), inputs);
}

Arrays group_norm_vjp_node(
    const GroupNormVJPSpec& spec,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<GroupNormVJP>(stream, spec);
  auto shapes = node->output_shapes(inputs);
  std::vector<mx::Dtype> dtypes;
  if (spec.input) {
    dtypes.push_back(inputs[0].dtype());
  }
  dtypes.resize(shapes.size(), spec.sums_dtype);
  return array::make_arrays(std::move(shapes), dtypes, std::move(node), inputs);
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

Arrays make_group_norm(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream) {
  if (backend_of(stream) == Backend::Cpu) {
    cpu::check_settings();
  }
  auto kernel_agrees = [&] { return agrees(spec, dtype, inputs, stream); };
  if (!runs_kernels(stream, kernel_agrees)) {
    return fallback_group_norm(spec, dtype, inputs, stream);
  }
  return group_norm_node(spec, dtype, std::move(inputs), stream);
}

Arrays make_group_norm_vjp(
    const GroupNormVJPSpec& spec,
    Arrays inputs,
    mx::Stream stream) {
  auto kernel_agrees = [&] { return agrees(spec, inputs, stream); };
  if (!runs_kernels(stream, kernel_agrees)) {
    return fallback_group_norm_vjp(spec, inputs, stream);
  }
  return group_norm_vjp_node(spec, std::move(inputs), stream);
}

Arrays GroupNorm::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = fallback_of(spec_, dtype_, stream());
  return jvp_of(f, primals, tangents, argnums);
}

Arrays GroupNorm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  auto s = stream();
  bool of_statistics =
      std::any_of(cotangents.begin() + 1, cotangents.end(), [](const array& a) {
        return !is_made_of_zeros(a);
      });
  if (of_statistics) {
    auto f = fallback_of(spec_, dtype_, s);
    return vjp_of(f, primals, cotangents, argnums);
  }
  GroupNormInputs in(spec_, primals.data());
  GroupNormVJPSpec vjp{.norm = spec_};
  for (int i : argnums) {
    (i == 0 ? vjp.input : vjp.sums) = true;
  }
  vjp.sums_dtype = sums_dtype_of(spec_, primals, argnums, s);
  auto inputs = primals;
  inputs.insert(inputs.end(), outputs.begin() + 1, outputs.end());
  inputs.push_back(cotangents[0]);
  auto results = make_group_norm_vjp(vjp, std::move(inputs), s);
  OptionalArray of_bias, of_weight; // over all samples
  if (vjp.sums) {
    std::vector<int> samples(spec_.sample_axes);
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
      auto square = mx::reciprocal(mx::add(variance, array(spec_.eps), s), s);
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

std::pair<Arrays, std::vector<int>> GroupNorm::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  if (any_batched(axes, 1, axes.size())) {
    auto f = fallback_of(spec_, dtype_, stream());
    return with_leading_axes(mx::vmap(f, axes)(inputs));
  }
  auto batch = inputs;
  batch[0] = with_leading_axis(inputs[0], axes[0], stream());
  auto spec = spec_;
  spec.sample_axes += 1;
  return with_leading_axes(
      make_group_norm(spec, dtype_, std::move(batch), stream()));
}

bool GroupNorm::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const GroupNorm&>(other);
  return spec_ == o.spec_ && dtype_ == o.dtype_ && merging_.into(o.merging_);
}

void GroupNorm::check_shapes(const Arrays& inputs) const {
  check_parameters(spec_, inputs);
}

std::vector<mx::Shape> GroupNorm::output_shapes(const Arrays& inputs) {
  const auto& x = inputs[0];
  std::vector<mx::Shape> shapes{x.shape()};
  if (!spec_.running) {
    shapes.resize(4, per_sample(spec_, x, spec_.groups_of(x)));
  }
  return shapes;
}

Arrays GroupNormVJP::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  return jvp_of(fallback_of(spec_, stream()), primals, tangents, argnums);
}

Arrays GroupNormVJP::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  return vjp_of(fallback_of(spec_, stream()), primals, cotangents, argnums);
}

std::pair<Arrays, std::vector<int>> GroupNormVJP::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto s = stream();
  int parameters = spec_.norm.n_parameters();
  bool all = axes[0] >= 0;
  for (size_t i = 1 + parameters; i < axes.size(); ++i) {
    all = all && axes[i] >= 0;
  }
  if (!all || any_batched(axes, 1, 1 + parameters)) {
    return with_leading_axes(mx::vmap(fallback_of(spec_, s), axes)(inputs));
  }
  auto batch = inputs;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (axes[i] >= 0) {
      batch[i] = mx::moveaxis(inputs[i], axes[i], 0, s);
    }
  }
  auto spec = spec_;
  spec.norm.sample_axes += 1;
  return with_leading_axes(make_group_norm_vjp(spec, std::move(batch), s));
}

bool GroupNormVJP::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const GroupNormVJP&>(other);
  return spec_ == o.spec_ && merging_.into(o.merging_);
}

void GroupNormVJP::check_shapes(const Arrays& inputs) const {
  check_parameters(spec_.norm, inputs);
  check_same_shape(name(), "cotangent", inputs.back(), inputs[0]);
}

std::vector<mx::Shape> GroupNormVJP::output_shapes(const Arrays& inputs) {
  const auto& x = inputs[0];
  std::vector<mx::Shape> shapes;
  if (spec_.input) {
    shapes.push_back(x.shape());
  }
  if (spec_.sums) {
    shapes.resize(2 + spec_.input, per_sample(spec_.norm, x, x.shape(-1)));
  }
  return shapes;
}

} // namespace mlx_norms
