// Copyright © 2026 mlx_norms contributors

#include <algorithm>

#include "csrc/common/checks.h"
#include "csrc/common/derivatives.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/gradients.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/op/node.h"

namespace mlx_norms {

namespace {

// {x, sum, [post_weight], [weight]} of the gradients of x's norm and the sum's.
Arrays in_order(const Arrays& of_x, const Arrays& of_sum) {
  Arrays gradients{of_x[0], of_sum[0]};
  gradients.insert(gradients.end(), of_x.begin() + 1, of_x.end());
  gradients.insert(gradients.end(), of_sum.begin() + 1, of_sum.end());
  return gradients;
}

} // namespace

NormVJP NormAddNormVJP::of_x() const {
  NormVJP of{norms.norm(norms.post_weight), {kX}, {dtypes[0]}};
  of.norm.operands.set(kCotangent);
  if (post_weight) {
    of.wanted.set(kWeight);
    of.dtypes.push_back(dtypes[2]);
  }
  return of;
}

NormVJP NormAddNormVJP::of_sum() const {
  NormVJP of{norms.norm(norms.weight), {kX}, {dtypes[1]}};
  of.norm.operands.set(kCotangent);
  of.norm.operands.set(kSumCotangent);
  of.norm.clamp = norms.clamp;
  if (weight) {
    of.wanted.set(kWeight);
    of.dtypes.push_back(dtypes.back());
  }
  return of;
}

Arrays NormAddNormVJP::fallback(const Arrays& inputs, mx::Stream s) const {
  NormAddNormVJPInputs in(norms, inputs.data());
  auto of_sums = of_sum().fallback(in.of_sum().arrays(), s);
  auto of_xs = of_x().fallback(in.of_x(of_sums[0]).arrays(), s);
  return in_order(of_xs, of_sums);
}

// The gradients of one norm after another.
Arrays NormAddNormVJP::steps(const Arrays& inputs, mx::Stream s) const {
  NormAddNormVJPInputs in(norms, inputs.data());
  auto of_sums = make(of_sum(), in.of_sum().arrays(), s);
  auto of_xs = make(of_x(), in.of_x(of_sums[0]).arrays(), s);
  return in_order(of_xs, of_sums);
}

void NormAddNormVJP::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  norms.append_key(inputs, numbers);
  numbers.push_back(post_weight);
  numbers.push_back(weight);
}

OpPtr NormAddNormVJP::sampled(const Arrays&, mx::Stream) const {
  return shared(NormAddNormVJP(norms.flags(), post_weight, weight, dtypes));
}

// Of so many rows that weights' gradients add up several partial sums.
Arrays NormAddNormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  return norms.few_rows(inputs, 10, /* large= */ false, s);
}

Donors NormAddNormVJP::donors(const Arrays& inputs, size_t i, mx::Stream s)
    const {
  if (i > 1 || !suits(inputs, s)) {
    return {};
  }
  NormAddNormVJPInputs in(norms, inputs.data());
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
  int factor_at = weight_at + spec.weight;
  auto wanted = [&](bool given, int i) {
    return given &&
        std::find(argnums.begin(), argnums.end(), i) != argnums.end();
  };
  NormAddNormVJP both{
      spec,
      wanted(spec.post_weight, post_at),
      wanted(spec.weight, weight_at),
      {in.x.dtype(), h.dtype()}};
  if (both.post_weight) {
    both.dtypes.push_back(in.post_weight->dtype());
  }
  if (both.weight) {
    both.dtypes.push_back(in.weight->dtype());
  }
  Arrays gradients(primals.size(), array(0.0f)); // those that are wanted
  auto of_sum = mx::astype(cotangents[1], h.dtype(), s);
  auto cotangent = mx::astype(cotangents[0], dtypes[0], s);
  bool takes_part = !is_made_of_zeros(cotangents[0]);

  if (takes_part && wanted(true, 0) && !spec.is_factored()) {
    auto inputs = primals;
    inputs[1] = h;
    inputs.insert(inputs.end(), {cotangent, of_sum});
    auto op = shared(both);
    if (has_kernel(op, inputs, s)) {
      auto found = node(std::move(op), std::move(inputs), s);
      gradients[0] = found[0];
      gradients[1] = mx::astype(found[1], in.residual.dtype(), s);
      if (both.post_weight) {
        gradients[post_at] = found[2];
      }
      if (both.weight) {
        gradients[weight_at] = found.back();
      }
      return select(gradients, argnums);
    }
  }

  auto gradients_of = [&](const NormVJP& of, const NormInputs& inputs, bool x) {
    auto some = of.wanted;
    some.set(kX, x);
    PerOperand<std::optional<mx::Dtype>> given;
    if (auto* weight = inputs[kWeight]) {
      given[kWeight] = weight->dtype();
    }
    return norm_gradients(of.norm, inputs, some, given, s);
  };
  // Of the sum: of its norm, and its own cotangent.
  bool of_factor = wanted(spec.factor, factor_at);
  bool needs_sum =
      wanted(true, 0) || wanted(true, 1) || both.post_weight || of_factor;
  if (takes_part) {
    auto found = gradients_of(
        both.of_sum(),
        {{kX, &h},
         {kWeight, in.weight},
         {kCotangent, &cotangent},
         {kSumCotangent, &of_sum}},
        needs_sum);
    if (found[kWeight]) {
      gradients[weight_at] = *found[kWeight];
    }
    if (found[kX]) {
      of_sum = *found[kX];
    }
  } else {
    if (spec.clamp && h.dtype() == mx::float16) {
      of_sum = zero_where_saturated(of_sum, h, s);
    }
    if (both.weight) {
      gradients[weight_at] = mx::zeros_like(*in.weight, s);
    }
  }
  gradients[1] = mx::astype(of_sum, in.residual.dtype(), s);
  if (spec.is_factored()) {
    auto n_dtype = spec.late() ? mx::float32 : in.x.dtype();
    auto post = spec.norm(spec.post_weight);
    auto n = make_norm(post, n_dtype, in.of_x().arrays(), s)[0];
    NormSpec product;
    product.number = spec.number;
    auto found = factor_vjp(
        product, in.of_sum(n), of_sum, /* of_x= */ true, of_factor, s);
    of_sum = *found[kX];
    if (of_factor) {
      gradients[factor_at] = mx::astype(*found[kFactor], in.factor->dtype(), s);
    }
  }

  auto found = gradients_of(
      both.of_x(),
      {{kX, &in.x}, {kWeight, in.post_weight}, {kCotangent, &of_sum}},
      wanted(true, 0));
  if (found[kX]) {
    gradients[0] = *found[kX];
  }
  if (found[kWeight]) {
    gradients[post_at] = *found[kWeight];
  }
  return select(gradients, argnums);
}

void NormAddNormVJP::check(const Arrays& inputs) const {
  NormAddNormVJPInputs in(norms, inputs.data());
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

mx::Shape NormAddNormVJP::shape(const Arrays& inputs, size_t i) const {
  const auto& x = inputs[0];
  return i < 2 ? x.shape() : mx::Shape{x.shape(-1)};
}

} // namespace mlx_norms
