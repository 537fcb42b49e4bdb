// Copyright © 2026 mlx_norms contributors

#include "csrc/common/checks.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/few_rows.h"
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

// The gradients of one norm with these inputs: of what it normalizes, if that
// is wanted, and of a weight.
Gradients gradients_of_one(
    const NormSpec& norm,
    const NormInputs& in,
    bool of_input,
    bool of_weight,
    mx::Stream s) {
  Operands wanted;
  wanted.set(kX, of_input);
  wanted.set(kWeight, of_weight);
  PerOperand<std::optional<mx::Dtype>> dtypes;
  if (auto* weight = in[kWeight]) {
    dtypes[kWeight] = weight->dtype();
  }
  return norm_gradients(norm, in, wanted, dtypes, s);
}

} // namespace

Call<NormVJP> NormAddNormVJP::of_sum(const Arrays& inputs) const {
  auto all = in(inputs);
  NormInputs of{
      {kX, all[kResidual]},
      {kWeight, all[kWeight]},
      {kCotangent, all[kCotangent]},
      {kSumCotangent, all[kSumCotangent]}};
  auto norm = norms.second_norm().without_sum();
  norm.operands = of.present();
  Call<NormVJP> call{{norm, {kX}, {dtypes[1]}}, of.arrays()};
  if (wanted.has(kWeight)) {
    call.op.wanted.set(kWeight);
    call.op.dtypes.push_back(dtypes.back());
  }
  return call;
}

Call<NormVJP> NormAddNormVJP::of_x(
    const Arrays& inputs,
    const array& sum_gradient) const {
  auto all = in(inputs);
  NormInputs of{
      {kX, &all.x()}, {kWeight, all[kPostWeight]}, {kCotangent, &sum_gradient}};
  auto norm = norms.first_norm();
  norm.operands = of.present();
  Call<NormVJP> call{{norm, {kX}, {dtypes[0]}}, of.arrays()};
  if (wanted.has(kPostWeight)) {
    call.op.wanted.set(kWeight);
    call.op.dtypes.push_back(dtypes[2]);
  }
  return call;
}

Arrays NormAddNormVJP::fallback(const Arrays& inputs, mx::Stream s) const {
  auto sum = of_sum(inputs);
  auto of_sums = sum.op.fallback(sum.inputs, s);
  auto x = of_x(inputs, of_sums[0]);
  return in_order(x.op.fallback(x.inputs, s), of_sums);
}

Arrays NormAddNormVJP::steps(const Arrays& inputs, mx::Stream s) const {
  auto sum = of_sum(inputs);
  auto of_sums = make(std::move(sum.op), std::move(sum.inputs), s);
  auto x = of_x(inputs, of_sums[0]);
  return in_order(make(std::move(x.op), std::move(x.inputs), s), of_sums);
}

void NormAddNormVJP::append_key(
    const Arrays& inputs,
    mx::Stream,
    std::vector<int64_t>& numbers) const {
  norms.append_key(numbers);
  numbers.insert(numbers.end(), {inputs[0].shape(-1), wanted.bits()});
}

OpPtr NormAddNormVJP::sampled(const Arrays&, mx::Stream) const {
  return shared(NormAddNormVJP(norms.flags(), wanted, dtypes));
}

// Has so many rows that weights' gradients add up several partial sums.
Arrays NormAddNormVJP::sample(const Arrays& inputs, mx::Stream s) const {
  mx::Shape x{2, 10, 2, inputs[0].shape(-1)};
  return few_rows(inputs, norms.operands, x, /* large= */ false, s);
}

Donors NormAddNormVJP::donors(const Arrays& inputs, size_t i, mx::Stream s)
    const {
  if (i > 1 || !suits(inputs, s)) {
    return {};
  }
  auto all = in(inputs);
  auto *cotangent = all[kCotangent], *of_sum = all[kSumCotangent];
  return i == 0 ? Donors{&all.x(), cotangent, of_sum, all[kResidual]}
                : Donors{of_sum, cotangent, all[kResidual]};
}

void NormAddNormVJP::check(const Arrays& inputs) const {
  auto all = in(inputs);
  for (auto operand : norms.operands.without({kX})) {
    const auto& [argument, kind] = kOperandTraits[operand];
    auto* check = kind == OperandKind::Vector ? check_vector : check_same_shape;
    check(name(), argument, *all[operand], all.x());
  }
}

mx::Shape NormAddNormVJP::shape(const Arrays& inputs, size_t i) const {
  const auto& x = inputs[0];
  return i < 2 ? x.shape() : mx::Shape{x.shape(-1)};
}

Gradients norm_add_norm_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& sum,
    const array* cotangent,
    const array& sum_cotangent,
    Operands wanted,
    mx::Stream s) {
  Gradients gradients;
  auto all = in;
  all[kResidual] = &sum;
  all[kCotangent] = cotangent;
  all[kSumCotangent] = &sum_cotangent;
  if (cotangent && wanted.has(kX) && !spec.is_factored()) {
    auto norms = spec;
    norms.operands = all.present();
    auto weights = wanted.without({kX, kResidual});
    Dtypes dtypes{in.x().dtype(), sum.dtype()};
    for (auto weight : weights) {
      dtypes.push_back(in[weight]->dtype());
    }
    auto op = shared(NormAddNormVJP(norms, weights, std::move(dtypes)));
    auto inputs = all.arrays();
    if (has_kernel(op, inputs, s)) {
      auto found = node(std::move(op), std::move(inputs), s);
      gradients[kX] = found[0];
      gradients[kResidual] = found[1];
      for (auto weight : weights) {
        gradients[weight] = found[2 + weights.index_of(weight)];
      }
      return gradients;
    }
  }

  // The cotangents of the sum: that of its norm, and its own.
  auto of_sum = sum_cotangent;
  if (cotangent) {
    auto found = gradients_of_one(
        spec.second_norm().without_sum(),
        {{kX, &sum},
         {kWeight, in[kWeight]},
         {kCotangent, cotangent},
         {kSumCotangent, &sum_cotangent}},
        wanted.has_any({kX, kResidual, kPostWeight, kFactor}),
        wanted.has(kWeight),
        s);
    gradients[kWeight] = found[kWeight];
    of_sum = found[kX].value_or(of_sum);
  } else {
    if (spec.clamp && sum.dtype() == mx::float16) {
      of_sum = zero_where_saturated(of_sum, sum, s);
    }
    if (wanted.has(kWeight)) {
      gradients[kWeight] = mx::zeros_like(*in[kWeight], s);
    }
  }
  gradients[kResidual] = of_sum;

  auto norm = spec.first_norm();
  NormInputs of_x{{kX, &in.x()}, {kWeight, in[kPostWeight]}};
  if (spec.is_factored()) {
    bool late = spec.rounding == Rounding::Late;
    auto n_dtype = late ? mx::float32 : in.x().dtype();
    auto n = make_norm(norm, n_dtype, of_x.arrays(), s)[0];
    NormSpec product;
    product.factor = spec.factor;
    auto factored = in;
    factored[kX] = &n;
    auto found = factor_vjp(
        product, factored, of_sum, /* of_x= */ true, wanted.has(kFactor), s);
    of_sum = *found[kX];
    gradients[kFactor] = found[kFactor];
  }
  of_x[kCotangent] = &of_sum;
  auto found =
      gradients_of_one(norm, of_x, wanted.has(kX), wanted.has(kPostWeight), s);
  gradients[kX] = found[kX];
  gradients[kPostWeight] = found[kWeight];
  return gradients;
}

} // namespace mlx_norms
