// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/common/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/nodes.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"

namespace mlx_norms {

namespace {

ParameterDtypes dtype_of(const array* weight) {
  return {.weight = weight ? weight->dtype() : mx::float32};
}

// The outputs' dtypes, if each gradient has its array's.
std::vector<mx::Dtype> dtypes_of(
    const NormAddNormVJPSpec& spec,
    const NormAddNormVJPInputs& in) {
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

} // namespace

NormVJPSpec NormAddNormVJPSpec::of_x() const {
  NormVJPSpec of{.norm = norms.norm_of_x(), .input = true};
  of.weight = post_weight;
  return of;
}

NormVJPSpec NormAddNormVJPSpec::of_sum() const {
  NormVJPSpec of{.norm = norms.norm_of_sum(), .input = true};
  of.norm.residual = true; // the sum's cotangent
  of.norm.clamp = norms.clamp;
  of.weight = weight;
  return of;
}

Arrays NormAddNormVJP::fallback(const Arrays& inputs, mx::Stream stream) const {
  NormAddNormVJPInputs in(spec.norms, inputs.data());
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

// The gradients of one norm after another.
Arrays NormAddNormVJP::steps(const Arrays& inputs, mx::Stream stream) const {
  NormAddNormVJPInputs in(spec.norms, inputs.data());
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
}

void NormAddNormVJP::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  spec.norms.append_key(inputs, numbers);
  numbers.push_back(spec.post_weight);
  numbers.push_back(spec.weight);
}

NormAddNormVJP NormAddNormVJP::sampled(const Arrays&, mx::Stream) const {
  auto flags = spec;
  flags.norms = spec.norms.flags();
  return {flags, dtypes};
}

// Of so many rows that weights' gradients add up several partial sums.
Arrays NormAddNormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  return spec.norms.few_rows(inputs, 20, /* large= */ false, s);
}

Donors NormAddNormVJP::donors(const Arrays& inputs, size_t i, mx::Stream s)
    const {
  if (i > 1 || !suits(inputs, s)) {
    return {};
  }
  NormAddNormVJPInputs in(spec.norms, inputs.data());
  return i == 0 ? Donors{&in.x, &in.cotangent, &in.sum_cotangent, &in.sum}
                : Donors{&in.sum_cotangent, &in.cotangent, &in.sum};
}

Arrays NormAddNorm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs,
    mx::Stream s) const {
  NormAddNormInputs in(spec, primals.data());
  const auto& h = outputs[1];
  int post_at = 2;
  int weight_at = 2 + spec.post_weight;
  auto wanted = [&](bool given, int i) {
    return given &&
        std::find(argnums.begin(), argnums.end(), i) != argnums.end();
  };
  NormAddNormVJPSpec of{
      spec, wanted(spec.post_weight, post_at), wanted(spec.weight, weight_at)};
  Arrays gradients(primals.size(), array(0.0f)); // those that are wanted
  auto of_sum = mx::astype(cotangents[1], h.dtype(), s);
  auto cotangent = mx::astype(cotangents[0], dtypes[0], s);
  bool takes_part = !is_made_of_zeros(cotangents[0]);

  if (takes_part && wanted(true, 0)) {
    auto inputs = primals;
    inputs[1] = h;
    inputs.insert(inputs.end(), {cotangent, of_sum});
    NormAddNormVJP gradient{of, dtypes_of(of, {spec, inputs.data()})};
    if (has_gpu_kernels(s) && gradient.suits(inputs, s) &&
        runs_kernel(gradient, inputs, s)) {
      auto found = node(std::move(gradient), std::move(inputs), s);
      gradients[0] = found[0];
      gradients[1] = mx::astype(found[1], in.residual.dtype(), s);
      if (of.post_weight) {
        gradients[post_at] = found[2];
      }
      if (of.weight) {
        gradients[weight_at] = found.back();
      }
      return select(gradients, argnums);
    }
  }

  // Of the sum: of its norm, and its own cotangent.
  auto first = of.of_sum();
  first.input = wanted(true, 0) || wanted(true, 1) || of.post_weight;
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
    if (spec.clamp && h.dtype() == mx::float16) {
      of_sum = zero_where_saturated(of_sum, h, s);
    }
    if (first.weight) {
      gradients[weight_at] = mx::zeros_like(*in.weight, s);
    }
  }
  gradients[1] = mx::astype(of_sum, in.residual.dtype(), s);

  auto second = of.of_x();
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

void NormAddNormVJP::check(const Arrays& inputs) const {
  NormAddNormVJPInputs in(spec.norms, inputs.data());
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

std::vector<mx::Shape> NormAddNormVJP::shapes(const Arrays& inputs) const {
  NormAddNormVJPInputs in(spec.norms, inputs.data());
  std::vector<mx::Shape> shapes{in.x.shape(), in.x.shape()};
  if (spec.post_weight) {
    shapes.push_back(in.post_weight->shape());
  }
  if (spec.weight) {
    shapes.push_back(in.weight->shape());
  }
  return shapes;
}

} // namespace mlx_norms
