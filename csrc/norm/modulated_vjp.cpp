// Copyright © 2026 mlx_norms contributors

#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/gradients.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/row_groups.h"

namespace mlx_norms {

namespace {

array as_float(const array& a, mx::Stream s) {
  return mx::astype(a, mx::float32, s);
}

// The weight, and the offset added to it, with which a norm without scale and
// shift has this norm's input gradient: a row for each group of rows that are
// added up.
struct GroupWeight {
  array weight;
  float offset;

  GroupWeight(
      const NormSpec& spec,
      const NormInputs& in,
      const array& x_or_sum,
      Operands wanted,
      mx::Stream stream)
      : weight(in[kScale] ? *in[kScale] : *in[kShift]),
        offset(1.0f) {
    if (in[kWeight]) {
      weight = shifted_weight(spec, *in[kWeight], stream);
      offset = 0.0f;
      if (in[kScale]) {
        auto factor = scale_factor(*in[kScale], stream);
        weight = mx::multiply(weight, factor, stream);
      }
    } else if (!in[kScale]) {
      weight = mx::zeros_like(*in[kShift], stream);
    }
    if (wanted.has(kShift) && in[kShift]->shape() != weight.shape()) {
      weight = mx::broadcast_arrays({weight, *in[kShift]}, stream)[0];
    }
    bool has_heads = in[kBias] && in[kBias]->ndim() > 1;
    if (has_heads && wanted.has_any({kBias, kScale})) {
      weight = mx::broadcast_arrays({weight, *in[kBias]}, stream)[0];
    }
    auto shape = grouped_shape(weight.shape(), x_or_sum.shape());
    if (shape != weight.shape()) {
      weight = mx::broadcast_to(weight, shape, stream);
    }
  }
};

} // namespace

Gradients modulated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& x_or_sum,
    const array& cotangent,
    const array* sum_cotangent,
    Operands wanted,
    mx::Stream stream) {
  GroupWeight groups(spec, in, x_or_sum, wanted, stream);
  // Sums over each group: of g * n and of g, where g is the cotangent.
  bool bias_of_scale = wanted.has(kScale) && in[kBias];
  Operands of_groups;
  of_groups.set(kX, wanted.has(kX));
  of_groups.set(kWeight, wanted.has_any({kScale, kWeight}));
  of_groups.set(kBias, wanted.has_any({kShift, kBias}) || bias_of_scale);
  auto norm = spec.without_sum();
  norm.weight_offset = groups.offset;

  PerOperand<std::optional<mx::Dtype>> dtypes;
  auto is_sum = [&](const array* a) {
    return a && a->shape() == groups.weight.shape();
  };
  if (!in[kWeight] && !in[kBias] && is_sum(in[kScale])) {
    dtypes[kWeight] = in[kScale]->dtype();
  }
  if (!wanted.has(kBias) && !bias_of_scale && is_sum(in[kShift])) {
    dtypes[kBias] = in[kShift]->dtype();
  }
  auto found = norm_gradients(
      norm,
      {{kX, &x_or_sum},
       {kWeight, &groups.weight},
       {kCotangent, &cotangent},
       {kSumCotangent, sum_cotangent}},
      of_groups,
      dtypes,
      stream);
  Gradients gradients;
  gradients[kX] = found[kX];
  const auto& gn = found[kWeight];
  const auto& g = found[kBias];
  auto give = [&](Operand operand, const array& sum) {
    gradients[operand] = sum_to(sum, *in[operand], stream);
  };
  auto scaled = [&](const array& sum) {
    return in[kScale]
        ? mx::multiply(sum, scale_factor(*in[kScale], stream), stream)
        : sum;
  };
  if (wanted.has(kScale)) {
    // The gradient for (n * w + b) * (1 + scale)
    auto sum = *gn;
    if (in[kWeight]) {
      auto weight = shifted_weight(spec, *in[kWeight], stream);
      sum = mx::multiply(sum, weight, stream);
    }
    if (in[kBias]) {
      auto of_bias = mx::multiply(*g, as_float(*in[kBias], stream), stream);
      sum = mx::add(sum, of_bias, stream);
    }
    give(kScale, sum);
  }
  if (wanted.has(kShift)) {
    give(kShift, *g);
  }
  if (wanted.has(kWeight)) {
    give(kWeight, scaled(*gn));
  }
  if (wanted.has(kBias)) {
    give(kBias, scaled(*g));
  }
  return gradients;
}

OptionalArray sum_tangent(
    const NormSpec& spec,
    const NormInputs& in,
    const PerOperand<const array*>& tangent,
    mx::Stream stream) {
  OptionalArray total;
  auto add = [&](const array& term) {
    auto t = mx::astype(term, mx::float32, stream);
    total = total ? mx::add(*total, t, stream) : t;
  };
  auto* factor = in[kFactor];
  auto* of_factor = tangent[kFactor];
  if (spec.factor_of_sum) {
    auto number = mx::reshape(as_float(*factor, stream), {}, stream);
    for (auto operand : {kResidual, kX}) {
      if (auto* t = tangent[operand]) {
        add(mx::multiply(number, as_float(*t, stream), stream));
      }
    }
    if (of_factor) {
      auto sum = mx::add(in.x(), *in[kResidual], stream);
      auto t = mx::reshape(as_float(*of_factor, stream), {}, stream);
      add(mx::multiply(as_float(sum, stream), t, stream));
    }
  } else {
    for (auto operand : kAddends.without({kX})) {
      if (auto* t = tangent[operand]) {
        add(*t);
      }
    }
    if (auto* t = tangent[kX]) {
      auto by = factor ? as_float(*factor, stream) : array(float{spec.factor});
      add(mx::multiply(by, as_float(*t, stream), stream));
    }
    if (of_factor) {
      add(mx::multiply(
          as_float(in.x(), stream), as_float(*of_factor, stream), stream));
    }
  }
  return total ? OptionalArray(mx::astype(*total, in.sum_dtype(), stream))
               : std::nullopt;
}

namespace {

// The gradients of a product of rows with a factor, which are those of a norm
// that normalizes nothing.
Gradients product_gradients(
    const array& x,
    const array& factor,
    const array& cotangent,
    Operands wanted,
    mx::Dtype factor_dtype,
    mx::Stream stream) {
  NormSpec norm;
  norm.identity = true;
  PerOperand<std::optional<mx::Dtype>> dtypes;
  dtypes[kWeight] = factor_dtype;
  return norm_gradients(
      norm,
      {{kX, &x}, {kWeight, &factor}, {kCotangent, &cotangent}},
      wanted,
      dtypes,
      stream);
}

Gradients factor_of_sum_vjp(
    const NormInputs& in,
    const array& sum_gradient,
    bool of_x,
    bool of_factor,
    mx::Stream stream) {
  Gradients gradients;
  const auto& own = *in[kFactor];
  auto factor = mx::reshape(own, {1}, stream);
  if (of_x) {
    gradients[kX] = mx::multiply(sum_gradient, factor, stream);
  }
  if (of_factor) {
    // The sums over rows of a product with a weight, then over their elements.
    auto sum = mx::add(in.x(), *in[kResidual], stream);
    auto weight = mx::broadcast_to(factor, {sum.shape(-1)}, stream);
    auto of_columns = product_gradients(
        sum, weight, sum_gradient, {kWeight}, mx::float32, stream);
    gradients[kFactor] =
        mx::reshape(mx::sum(*of_columns[kWeight], stream), own.shape(), stream);
  }
  return gradients;
}

} // namespace

Gradients factor_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& sum_gradient,
    bool of_x,
    bool of_factor,
    mx::Stream stream) {
  Gradients gradients;
  if (!in[kFactor]) {
    if (of_x) {
      auto number = array(float{spec.factor}, sum_gradient.dtype());
      gradients[kX] = mx::multiply(sum_gradient, number, stream);
    }
    return gradients;
  }
  if (spec.factor_of_sum) {
    return factor_of_sum_vjp(in, sum_gradient, of_x, of_factor, stream);
  }
  auto factor = *in[kFactor];
  auto shape = grouped_shape(factor.shape(), in.x().shape());
  bool grouped = shape == factor.shape();
  if (!grouped) {
    factor = mx::broadcast_to(factor, shape, stream);
  }
  Operands wanted;
  wanted.set(kX, of_x);
  wanted.set(kWeight, of_factor);
  auto found = product_gradients(
      in.x(),
      factor,
      sum_gradient,
      wanted,
      grouped ? factor.dtype() : mx::float32,
      stream);
  gradients[kX] = found[kX];
  if (of_factor) {
    gradients[kFactor] = sum_to(*found[kWeight], *in[kFactor], stream);
  }
  return gradients;
}

} // namespace mlx_norms
