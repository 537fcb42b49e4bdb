// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/sandwich_vjp.h"

#include <algorithm>

#include "csrc/common/backend.h"
#include "csrc/common/batch.h"
#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/nodes.h"

namespace mlx_norms {

namespace {

ParameterDtypes dtype_of(const array* weight) {
  return {.weight = weight ? weight->dtype() : mx::float32};
}

// The outputs' dtypes, if each gradient has its array's.
std::vector<mx::Dtype> dtypes_of(
    const SandwichVJPSpec& spec,
    const SandwichVJPInputs& in) {
  std::vector<mx::Dtype> dtypes{in.x.dtype(), in.sum.dtype()};
  if (spec.post_weight) {
    dtypes.push_back(in.post_weight->dtype());
  }
  if (spec.weight) {
    dtypes.push_back(in.weight->dtype());
  }
  return dtypes;
}

// In the order of the outputs.
Arrays in_order(
    const array& x,
    const array& sum,
    const OptionalArray& post_weight,
    const OptionalArray& weight) {
  Arrays gradients{x, sum};
  for (const auto& of : {post_weight, weight}) {
    if (of) {
      gradients.push_back(*of);
    }
  }
  return gradients;
}

// By the gradients of one norm after another.
Function two_gradients(const SandwichVJPSpec& spec, mx::Stream stream) {
  return [=](const Arrays& inputs) {
    SandwichVJPInputs in(spec.norms, inputs.data());
    auto of_sum = norm_gradients(
        spec.of_sum(),
        {in.sum, in.weight, in.cotangent, &in.sum_cotangent},
        dtype_of(in.weight),
        stream);
    auto of_x = norm_gradients(
        spec.of_x(),
        {in.x, in.post_weight, *of_sum.input},
        dtype_of(in.post_weight),
        stream);
    return in_order(*of_x.input, *of_sum.input, of_x.weight, of_sum.weight);
  };
}

Function fallback_of(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    mx::Stream stream) {
  return [=](const Arrays& inputs) {
    return fallback_norm_add_norm_vjp(spec, dtypes, inputs, stream);
  };
}

} // namespace

NormVJPSpec SandwichVJPSpec::of_x() const {
  NormVJPSpec of{.norm = norms.norm_of_x(), .input = true};
  of.weight = post_weight;
  return of;
}

NormVJPSpec SandwichVJPSpec::of_sum() const {
  NormVJPSpec of{.norm = norms.norm_of_sum(), .input = true};
  of.norm.residual = true; // the sum's cotangent
  of.norm.clamp = norms.clamp;
  of.weight = weight;
  return of;
}

Arrays fallback_norm_add_norm_vjp(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream) {
  SandwichVJPInputs in(spec.norms, inputs.data());
  auto of_sum = fallback_norm_vjp(
      spec.of_sum(),
      {dtypes[1], dtypes.back()},
      {in.sum, in.weight, in.cotangent, &in.sum_cotangent},
      stream);
  auto of_x = fallback_norm_vjp(
      spec.of_x(),
      {dtypes[0], dtypes[spec.post_weight ? 2 : 0]},
      {in.x, in.post_weight, of_sum[0]},
      stream);
  auto last = [](bool wanted, const Arrays& of) {
    return wanted ? OptionalArray(of.back()) : std::nullopt;
  };
  return in_order(
      of_x[0],
      of_sum[0],
      last(spec.post_weight, of_x),
      last(spec.weight, of_sum));
}

bool has_kernel(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const Arrays& inputs,
    mx::Stream stream) {
  if (!has_gpu_kernels(stream)) {
    return false;
  }
  SandwichVJPInputs in(spec.norms, inputs.data());
  auto kernel_agrees = [&] { return agrees(spec, dtypes, inputs, stream); };
  return holds_rows(in, stream) && runs_kernels(stream, kernel_agrees);
}

Arrays norm_add_norm_vjp_node(
    const SandwichVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<NormAddNormVJP>(stream, spec, dtypes);
  auto shapes = node->output_shapes(inputs);
  return array::make_arrays(
      std::move(shapes), dtypes, std::move(node), std::move(inputs));
}

Arrays NormAddNorm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs) {
  SandwichInputs in(spec_, primals.data());
  const auto& h = outputs[1];
  auto s = stream();
  int post_at = 2;
  int weight_at = 2 + spec_.post_weight;
  auto wanted = [&](bool given, int i) {
    return given &&
        std::find(argnums.begin(), argnums.end(), i) != argnums.end();
  };
  SandwichVJPSpec spec{
      spec_,
      wanted(spec_.post_weight, post_at),
      wanted(spec_.weight, weight_at)};
  Arrays gradients(primals.size(), array(0.0f)); // those that are wanted
  auto of_sum = mx::astype(cotangents[1], h.dtype(), s);
  auto cotangent = mx::astype(cotangents[0], dtype_, s);
  bool takes_part = !is_made_of_zeros(cotangents[0]);

  if (takes_part && wanted(true, 0)) {
    auto inputs = primals;
    inputs[1] = h;
    inputs.insert(inputs.end(), {cotangent, of_sum});
    auto dtypes = dtypes_of(spec, {spec_, inputs.data()});
    if (has_kernel(spec, dtypes, inputs, s)) {
      auto found = norm_add_norm_vjp_node(spec, dtypes, std::move(inputs), s);
      gradients[0] = found[0];
      gradients[1] = mx::astype(found[1], in.residual.dtype(), s);
      if (spec.post_weight) {
        gradients[post_at] = found[2];
      }
      if (spec.weight) {
        gradients[weight_at] = found.back();
      }
      return select(gradients, argnums);
    }
  }

  // Of the sum: of its norm, and its own cotangent.
  auto first = spec.of_sum();
  first.input = wanted(true, 0) || wanted(true, 1) || spec.post_weight;
  if (takes_part && (first.input || first.weight)) {
    auto found = norm_gradients(
        first, {h, in.weight, cotangent, &of_sum}, dtype_of(in.weight), s);
    if (found.weight) {
      gradients[weight_at] = *found.weight;
    }
    if (found.input) {
      of_sum = *found.input;
    }
  } else {
    if (spec_.clamp && h.dtype() == mx::float16) {
      of_sum = zero_where_saturated(of_sum, h, s);
    }
    if (first.weight) {
      gradients[weight_at] = mx::zeros_like(*in.weight, s);
    }
  }
  gradients[1] = mx::astype(of_sum, in.residual.dtype(), s);

  auto second = spec.of_x();
  second.input = wanted(true, 0);
  auto found = norm_gradients(
      second, {in.x, in.post_weight, of_sum}, dtype_of(in.post_weight), s);
  if (found.input) {
    gradients[0] = *found.input;
  }
  if (found.weight) {
    gradients[post_at] = *found.weight;
  }
  return select(gradients, argnums);
}

Arrays NormAddNormVJP::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums) {
  auto f = fallback_of(spec_, dtypes_, stream());
  return jvp_of(f, primals, tangents, argnums);
}

Arrays NormAddNormVJP::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays&) {
  auto f = fallback_of(spec_, dtypes_, stream());
  return vjp_of(f, primals, cotangents, argnums);
}

std::pair<Arrays, std::vector<int>> NormAddNormVJP::vmap(
    const Arrays& inputs,
    const std::vector<int>& axes) {
  auto f = two_gradients(spec_, stream());
  return with_leading_axes(mx::vmap(f, axes)(inputs));
}

bool NormAddNormVJP::is_equivalent(const Primitive& other) const {
  const auto& o = static_cast<const NormAddNormVJP&>(other);
  return spec_ == o.spec_ && dtypes_ == o.dtypes_ && merging_.into(o.merging_);
}

void NormAddNormVJP::check_shapes(const Arrays& inputs) const {
  SandwichVJPInputs in(spec_.norms, inputs.data());
  check_same_shape(name(), "sum", in.sum, in.x);
  check_same_shape(name(), "cotangent", in.cotangent, in.x);
  check_same_shape(name(), "sum's cotangent", in.sum_cotangent, in.x);
  if (in.post_weight) {
    check_vector(name(), "post_weight", *in.post_weight, in.x);
  }
  if (in.weight) {
    check_vector(name(), "weight", *in.weight, in.x);
  }
}

std::vector<mx::Shape> NormAddNormVJP::output_shapes(const Arrays& inputs) {
  SandwichVJPInputs in(spec_.norms, inputs.data());
  std::vector<mx::Shape> shapes{in.x.shape(), in.x.shape()};
  if (spec_.post_weight) {
    shapes.push_back(in.post_weight->shape());
  }
  if (spec_.weight) {
    shapes.push_back(in.weight->shape());
  }
  return shapes;
}

} // namespace mlx_norms
