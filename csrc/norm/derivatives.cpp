// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/gradients.h"

#include <algorithm>

#include "csrc/common/activations.h"
#include "csrc/common/derivatives.h"
#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/groups/groups.h"
#include "csrc/norm/norm.h"
#include "csrc/norm/norm_add_norm/norm_add_norm.h"
#include "csrc/norm/split.h"

namespace mlx_norms {

namespace {

// The index of i in argnums; -1: absent.
int place_of(int i, const std::vector<int>& argnums) {
  auto it = std::find(argnums.begin(), argnums.end(), i);
  return it == argnums.end() ? -1 : it - argnums.begin();
}

// What one tensor's outputs change by, of these tangents: {[of the normalized
// one, in float32], [of the sum]}.
std::pair<OptionalArray, OptionalArray> tangents_of(
    const NormSpec& spec,
    const NormInputs& in,
    const array& x_or_sum,
    const PerOperand<const array*>& tangent,
    mx::Stream s) {
  OptionalArray ds, dy;
  auto add = [&](OptionalArray& total, const array& term) {
    total = total ? mx::add(*total, term, s) : term;
  };
  auto normalized = [&] { return bare_norm(spec, x_or_sum, s); };
  if (spec.is_factored()) {
    ds = sum_tangent(spec, in, tangent, s);
  } else {
    for (auto operand : kAddends) {
      if (auto* t = tangent[operand]) {
        add(ds, mx::astype(*t, x_or_sum.dtype(), s));
      }
    }
  }
  if (ds && spec.clamp && x_or_sum.dtype() == mx::float16) {
    ds = zero_where_saturated(*ds, x_or_sum, s);
  }
  if (ds) {
    auto unclamped = spec; // ds is zero where the sum is saturated, not dn
    unclamped.clamp = false;
    auto dn = bare_norm_vjp(unclamped, mx::float32, x_or_sum, *ds, nullptr, s);
    auto no_bias = spec;
    no_bias.operands.set(kBias, false);
    add(dy, apply_parameters(no_bias, dn, in, s));
  }
  auto add_broadcast = [&](Operand operand) {
    if (auto* t = tangent[operand]) {
      add(dy, mx::broadcast_arrays({*t, x_or_sum}, s)[0]);
    }
  };
  if (auto* dw = tangent[kWeight]) {
    add(dy, mx::multiply(normalized(), *dw, s));
  }
  add_broadcast(kBias);
  if (dy && in[kScale]) {
    dy = mx::multiply(*dy, scale_factor(*in[kScale], s), s);
  }
  if (auto* d_scale = tangent[kScale]) {
    auto y = apply_parameters(spec, normalized(), in, s);
    add(dy, mx::multiply(y, *d_scale, s));
  }
  add_broadcast(kShift);
  return {dy, ds};
}

// Replaces the gradient of the sum by those of what is added up to it.
void spread_over_sum(
    const NormSpec& spec,
    const NormInputs& in,
    Operands wanted,
    Gradients& gradients,
    mx::Stream s) {
  if (!gradients[kX]) {
    return;
  }
  for (auto operand : kAddends) {
    gradients[operand] = gradients[kX];
  }
  if (!spec.is_factored()) {
    return;
  }
  bool of_x = wanted.has(kX) || (spec.factor_of_sum && wanted.has(kResidual));
  auto found =
      factor_vjp(spec, in, *gradients[kX], of_x, wanted.has(kFactor), s);
  gradients[kX] = found[kX];
  gradients[kFactor] = found[kFactor];
  if (spec.factor_of_sum) {
    gradients[kResidual] = found[kX];
  }
}

// The gradients of a norm with at most a weight and a bias. A node has one
// shape for both: the bias of each head and one weight are summed by head.
Gradients plain_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& x_or_sum,
    const array& cotangent,
    const array* sum_cotangent,
    Operands wanted,
    mx::Stream s) {
  auto norm = spec.without_sum();
  auto *weight = in[kWeight], *bias = in[kBias];
  OptionalArray by_head;
  if (wanted.has(kBias) && bias->ndim() > 1 &&
      (!weight || weight->ndim() == 1)) {
    auto all = weight ? shifted_weight(spec, *weight, s) : array(1.0f);
    by_head = mx::broadcast_arrays({all, *bias}, s)[0];
    weight = &*by_head;
    norm.weight_offset = 0.0f;
  }
  bool of_heads = weight && weight->ndim() > 1;
  PerOperand<std::optional<mx::Dtype>> dtypes;
  Operands summed; // over heads
  for (auto operand : wanted.without({kX})) {
    if (of_heads && in[operand]->ndim() == 1) {
      summed.set(operand);
    } else {
      dtypes[operand] = in[operand]->dtype();
    }
  }
  auto gradients = norm_gradients(
      norm,
      {{kX, &x_or_sum},
       {kWeight, weight},
       {kCotangent, &cotangent},
       {kSumCotangent, sum_cotangent}},
      wanted,
      dtypes,
      s);
  for (auto operand : summed) {
    gradients[operand] = sum_to(*gradients[operand], *in[operand], s);
  }
  return gradients;
}

// The same where the result is activated without a gate: the norm's cotangent
// is multiplied by the slope at its result.
Gradients activated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& cotangent,
    Operands wanted,
    mx::Stream s) {
  auto plain = spec.without_gate();
  auto y = make_norm(plain, mx::float32, in.arrays(), s)[0];
  auto of_y = mx::multiply(
      mx::astype(cotangent, mx::float32, s), slope(spec.activation, y, s), s);
  return plain_vjp(plain, in, in.x(), of_y, nullptr, wanted, s);
}

// The gradients of one tensor. The cotangents are in the outputs' dtypes.
Gradients gradients_of(
    const NormSpec& spec,
    const NormInputs& in,
    const array& x_or_sum,
    const array& cotangent,
    const array* sum_cotangent,
    Operands wanted,
    mx::Stream s) {
  auto of_norm = wanted.without(kOfSum);
  of_norm.set(kX, wanted.has_any(kOfSum));
  if (spec.is_gated()) {
    return spec.has(kGate) ? gated_vjp(spec, in, cotangent, of_norm, s)
                           : activated_vjp(spec, in, cotangent, of_norm, s);
  }
  auto vjp = spec.is_modulated() ? modulated_vjp : plain_vjp;
  auto gradients =
      vjp(spec, in, x_or_sum, cotangent, sum_cotangent, of_norm, s);
  if (spec.has(kResidual)) {
    spread_over_sum(spec, in, wanted, gradients, s);
  }
  return gradients;
}

// Those of one tensor whose normalized output has a cotangent of zeros, which
// times a value that is not finite would make NaN. A norm that is its own node
// would take no part in this gradient.
Gradients gradients_of_sum_alone(
    const NormSpec& spec,
    const NormInputs& in,
    const array& x_or_sum,
    const array* sum_cotangent,
    Operands wanted,
    mx::Stream s) {
  auto ds = sum_cotangent ? *sum_cotangent : mx::zeros_like(x_or_sum, s);
  if (spec.clamp && x_or_sum.dtype() == mx::float16) {
    ds = zero_where_saturated(ds, x_or_sum, s);
  }
  Gradients gradients;
  gradients[kX] = ds;
  if (spec.has(kResidual)) {
    spread_over_sum(spec, in, wanted, gradients, s);
  }
  for (auto operand : wanted.without(kOfSum)) {
    gradients[operand] = mx::zeros_like(*in[operand], s);
  }
  return gradients;
}

// A residual's tangent or gradient, in the dtype that it has.
array times_alpha(const NormSpec& spec, const array& a, mx::Stream s) {
  return spec.alpha == 1.0f ? a
                            : mx::multiply(a, array(spec.alpha, a.dtype()), s);
}

} // namespace

Arrays Norm::jvp(
    const Arrays& primals,
    const Arrays& tangents,
    const std::vector<int>& argnums,
    mx::Stream s) const {
  if (spec.is_gated() || spec.norm_first || !spec.is_of_rows()) {
    auto f = [&](const Arrays& inputs) { return steps(inputs, s); };
    return jvp_of(f, primals, tangents, argnums);
  }
  Arrays outputs;
  for_each_tensor([&](const Tensor& tensor) {
    const auto& spec = tensor.spec;
    auto in = tensor.in(primals);
    PerOperand<const array*> tangent;
    for (auto operand : spec.operands) {
      auto place =
          place_of(tensor.input + spec.operands.index_of(operand), argnums);
      tangent[operand] = place < 0 ? nullptr : &tangents[place];
    }
    OptionalArray of_residual;
    if (auto* t = tangent[kResidual]) {
      of_residual = times_alpha(spec, *t, s);
      tangent[kResidual] = &*of_residual;
    }
    auto x_or_sum =
        spec.has(kResidual) ? bare_norm(spec, mx::float32, in, s)[1] : in.x();
    auto [dy, ds] = tangents_of(spec, in, x_or_sum, tangent, s);
    if (dy && spec.is_multiplied()) {
      dy = mx::multiply(*dy, array(float{spec.multiplier}), s);
    }
    auto dtype = dtypes[tensor.output];
    outputs.push_back(
        mx::astype(dy ? *dy : mx::zeros_like(x_or_sum, s), dtype, s));
    if (spec.has(kResidual)) {
      outputs.push_back(ds ? *ds : mx::zeros_like(x_or_sum, s));
    }
  });
  return outputs;
}

Arrays Norm::vjp(
    const Arrays& primals,
    const Arrays& cotangents,
    const std::vector<int>& argnums,
    const Arrays& outputs,
    mx::Stream s) const {
  auto is_wanted = [](const array& a) { return !is_made_of_zeros(a); };
  if (spec.grouped &&
      std::any_of(cotangents.begin() + 1, cotangents.end(), is_wanted)) {
    return Op::vjp(primals, cotangents, argnums, outputs, s);
  }
  Arrays gradients(argnums.size(), array(0.0f));
  bool has_sum = spec.has(kResidual);
  for_each_tensor([&](const Tensor& tensor) {
    auto spec = tensor.spec;
    auto out = tensor.output;
    auto place = [&](Operand operand) {
      return place_of(tensor.input + spec.operands.index_of(operand), argnums);
    };
    Operands wanted;
    for (auto operand : spec.operands) {
      wanted.set(operand, place(operand) >= 0);
    }
    auto in = tensor.in(primals);
    const auto& x_or_sum = has_sum ? outputs[out + 1] : in.x();
    auto no_part = outputs.size() > 1 && is_made_of_zeros(cotangents[out]);
    auto cotangent = mx::astype(cotangents[out], dtypes[out], s);
    if (spec.is_multiplied()) {
      bool early = spec.rounding == Rounding::Early;
      array by(float{spec.multiplier}, early ? cotangent.dtype() : mx::float32);
      cotangent = mx::multiply(cotangent, by, s);
      spec.multiplier = 1.0f;
    }
    OptionalArray of_sum;
    if (has_sum) {
      of_sum = mx::astype(cotangents[out + 1], x_or_sum.dtype(), s);
    }
    auto* sum_cotangent = of_sum ? &*of_sum : nullptr;
    auto* taking_part = no_part ? nullptr : &cotangent;
    auto found = spec.norm_first
        ? norm_add_norm_vjp(spec, in, x_or_sum, taking_part, *of_sum, wanted, s)
        : no_part
        ? gradients_of_sum_alone(spec, in, x_or_sum, sum_cotangent, wanted, s)
        : spec.grouped
        ? groups_vjp(spec, in, outputs.data() + 1, cotangent, wanted, s)
        : gradients_of(spec, in, x_or_sum, cotangent, sum_cotangent, wanted, s);
    if (auto& of_residual = found[kResidual]) {
      of_residual = times_alpha(spec, *of_residual, s);
    }
    for (auto operand : wanted) {
      gradients[place(operand)] =
          mx::astype(*found[operand], in[operand]->dtype(), s);
    }
  });
  return gradients;
}

} // namespace mlx_norms
