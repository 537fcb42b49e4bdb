// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/modulation.h"

#include "csrc/norm/fallback.h"
#include "csrc/norm/nodes.h"
#include "csrc/norm/row_groups.h"
#include "csrc/norm/split.h"

namespace mlx_norms {

namespace {

array as_float(const array& a, mx::Stream s) {
  return mx::astype(a, mx::float32, s);
}

// The weight of a norm without modulation that has this one's input gradient,
// and what is added to it. It has a row for each group of rows for which sums
// are wanted.
struct GroupWeight {
  array weight;
  float offset;

  GroupWeight(
      const NormSpec& spec,
      const NormInputs& in,
      const array& s,
      const NormFlags& wanted,
      mx::Stream stream)
      : weight(in.scale ? *in.scale : *in.shift),
        offset(1.0f) {
    if (in.weight) {
      weight = shifted_weight(spec, *in.weight, stream);
      offset = 0.0f;
      if (in.scale) {
        weight = mx::multiply(weight, scale_factor(*in.scale, stream), stream);
      }
    } else if (!in.scale) {
      weight = mx::zeros_like(*in.shift, stream);
    }
    if (wanted.shift && in.shift->shape() != weight.shape()) {
      weight = mx::broadcast_arrays({weight, *in.shift}, stream)[0];
    }
    auto shape = grouped_shape(weight.shape(), s.shape());
    if (shape != weight.shape()) {
      weight = mx::broadcast_to(weight, shape, stream);
    }
  }
};

} // namespace

array scale_factor(const array& scale, mx::Stream s) {
  return mx::add(array(1.0f), as_float(scale, s), s);
}

bool product_keeps(mx::Dtype dtype, const array& scale) {
  return mx::promote_types(dtype, scale.dtype()) == dtype;
}

array modulate(
    const NormSpec& spec,
    const array& normalized,
    const NormInputs& in,
    mx::Stream s) {
  auto y = normalized;
  bool early = spec.rounding == Rounding::Early;
  if (in.scale) {
    auto factor = early ? mx::add(array(1.0f, in.scale->dtype()), *in.scale, s)
                        : scale_factor(*in.scale, s);
    y = mx::multiply(y, factor, s);
  }
  if (in.shift) {
    y = mx::add(y, early ? *in.shift : as_float(*in.shift, s), s);
  }
  return y;
}

ModulatedGradients modulated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& s,
    const array& cotangent,
    const array* sum_cotangent,
    const NormFlags& wanted,
    mx::Stream stream) {
  GroupWeight groups(spec, in, s, wanted, stream);
  // Of each group: the sums of g * n and of g, where g is the cotangent.
  bool of_gn = wanted.scale || wanted.weight;
  bool of_g = wanted.shift || wanted.bias || (wanted.scale && in.bias);
  NormVJPSpec vjp{.norm = without_sum(spec), .input = wanted.x};
  vjp.norm.residual = sum_cotangent != nullptr;
  vjp.norm.scale = vjp.norm.shift = false;
  vjp.norm.weight = true;
  vjp.norm.weight_offset = groups.offset;
  vjp.weight = of_gn;
  vjp.bias = of_g;

  auto dtype_of = [&](const array* gradient, bool is_it) {
    is_it &= gradient && gradient->shape() == groups.weight.shape();
    return is_it ? gradient->dtype() : mx::float32;
  };
  ParameterDtypes dtypes{
      .weight = dtype_of(in.scale, !in.weight && !in.bias),
      .bias = dtype_of(in.shift, !wanted.bias && !(wanted.scale && in.bias))};
  auto found = norm_gradients(
      vjp, {s, &groups.weight, cotangent, sum_cotangent}, dtypes, stream);
  ModulatedGradients gradients{.input = found.input};
  const auto& gn = found.weight;
  const auto& g = found.bias;
  auto scaled = [&](const array& sum) {
    return in.scale ? mx::multiply(sum, scale_factor(*in.scale, stream), stream)
                    : sum;
  };
  if (wanted.scale) {
    // Of (n * w + b) * (1 + scale)
    auto sum = *gn;
    if (in.weight) {
      sum = mx::multiply(sum, shifted_weight(spec, *in.weight, stream), stream);
    }
    if (in.bias) {
      auto of_bias = mx::multiply(*g, as_float(*in.bias, stream), stream);
      sum = mx::add(sum, of_bias, stream);
    }
    gradients.scale = sum_to(sum, in.scale->shape(), stream);
  }
  if (wanted.shift) {
    gradients.shift = sum_to(*g, in.shift->shape(), stream);
  }
  if (wanted.weight) {
    gradients.weight = sum_to(scaled(*gn), in.weight->shape(), stream);
  }
  if (wanted.bias) {
    gradients.bias = sum_to(scaled(*g), in.bias->shape(), stream);
  }
  return gradients;
}

OptionalArray sum_tangent(
    const NormSpec& spec,
    const NormInputs& in,
    const array* of_x,
    const array* of_residual,
    const array* of_factor,
    mx::Stream stream) {
  OptionalArray total;
  auto dtype = mx::result_type(in.x, *in.residual);
  auto add = [&](const array& term) {
    auto t = mx::astype(term, mx::float32, stream);
    total = total ? mx::add(*total, t, stream) : t;
  };
  if (spec.factor_of_sum) {
    auto factor = mx::reshape(as_float(*in.factor, stream), {}, stream);
    for (auto* t : {of_residual, of_x}) {
      if (t) {
        add(mx::multiply(factor, as_float(*t, stream), stream));
      }
    }
    if (of_factor) {
      auto sum = mx::add(in.x, *in.residual, stream);
      auto t = mx::reshape(as_float(*of_factor, stream), {}, stream);
      add(mx::multiply(as_float(sum, stream), t, stream));
    }
    return total ? OptionalArray(mx::astype(*total, dtype, stream))
                 : std::nullopt;
  }
  if (of_residual) {
    add(*of_residual);
  }
  if (of_x) {
    auto factor = in.factor ? as_float(*in.factor, stream) : array(spec.number);
    add(mx::multiply(factor, as_float(*of_x, stream), stream));
  }
  if (of_factor) {
    add(mx::multiply(
        as_float(in.x, stream), as_float(*of_factor, stream), stream));
  }
  return total ? OptionalArray(mx::astype(*total, dtype, stream))
               : std::nullopt;
}

namespace {

FactorGradients factor_of_sum_vjp(
    const NormInputs& in,
    const array& sum_gradient,
    bool of_x,
    bool of_factor,
    mx::Stream stream) {
  FactorGradients gradients;
  auto factor = mx::reshape(*in.factor, {1}, stream);
  if (of_x) {
    gradients.x = mx::multiply(sum_gradient, factor, stream);
  }
  if (of_factor) {
    // The sums over rows of a product with a weight, then over their elements.
    auto sum = mx::add(in.x, *in.residual, stream);
    auto weight = mx::broadcast_to(factor, {sum.shape(-1)}, stream);
    NormVJPSpec vjp{.weight = true};
    vjp.norm.identity = vjp.norm.weight = true;
    auto of_columns =
        make_norm_vjp(vjp, {mx::float32}, {sum, weight, sum_gradient}, stream);
    gradients.factor =
        mx::reshape(mx::sum(of_columns[0], stream), in.factor->shape(), stream);
  }
  return gradients;
}

} // namespace

FactorGradients factor_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& sum_gradient,
    bool of_x,
    bool of_factor,
    mx::Stream stream) {
  if (!in.factor) {
    auto number = array(spec.number, sum_gradient.dtype());
    auto g = mx::multiply(sum_gradient, number, stream);
    return {of_x ? OptionalArray(g) : std::nullopt, std::nullopt};
  }
  if (spec.factor_of_sum) {
    return factor_of_sum_vjp(in, sum_gradient, of_x, of_factor, stream);
  }
  auto factor = *in.factor;
  auto shape = grouped_shape(factor.shape(), in.x.shape());
  bool grouped = shape == factor.shape();
  if (!grouped) {
    factor = mx::broadcast_to(factor, shape, stream);
  }
  NormVJPSpec vjp{.input = of_x, .weight = of_factor};
  vjp.norm.identity = vjp.norm.weight = true;
  auto found = norm_gradients(
      vjp,
      {in.x, &factor, sum_gradient},
      {.weight = grouped ? factor.dtype() : mx::float32},
      stream);
  if (found.weight) {
    found.weight = sum_to(*found.weight, in.factor->shape(), stream);
  }
  return {found.input, found.weight};
}

} // namespace mlx_norms
