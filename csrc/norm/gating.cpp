// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/gating.h"

#include <cmath>
#include <numbers>

#include "csrc/norm/norm.h"
#include "csrc/norm/row_groups.h"

namespace mlx_norms {

namespace {

array as_float(const array& a, mx::Stream s) {
  return mx::astype(a, mx::float32, s);
}

// The gradients of a norm whose result is activated without a gate, by those of
// the norm: its cotangent is multiplied by the slope at its result.
Gradients activated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& cotangent,
    Operands wanted,
    const PerOperand<std::optional<mx::Dtype>>& dtypes,
    mx::Stream stream) {
  auto plain = spec.without_gate();
  auto y = make_norm(plain, mx::float32, in.arrays(), stream)[0];
  auto g = mx::multiply(
      as_float(cotangent, stream), slope(spec.activation, y, stream), stream);
  return norm_gradients(
      plain,
      {{kX, &in.x()}, {kWeight, in[kWeight]}, {kCotangent, &g}},
      wanted,
      dtypes,
      stream);
}

} // namespace

array activated(Activation activation, const array& a, mx::Stream s) {
  auto number = [&](double v) {
    return array(static_cast<float>(v), a.dtype());
  };
  switch (activation) {
    case Activation::Sigmoid:
      return mx::sigmoid(a, s);
    case Activation::Silu:
      return mx::multiply(a, mx::sigmoid(a, s), s);
    case Activation::Gelu: {
      auto e = mx::erf(mx::divide(a, number(std::numbers::sqrt2), s), s);
      auto y = mx::multiply(a, mx::add(number(1), e, s), s);
      return mx::divide(y, number(2), s);
    }
    case Activation::Relu2:
      return mx::square(mx::maximum(a, number(0), s), s);
    case Activation::None:
      return a;
  }
  return a;
}

array slope(Activation activation, const array& a, mx::Stream s) {
  auto number = [&](double v) {
    return array(static_cast<float>(v), a.dtype());
  };
  if (activation == Activation::None) {
    return mx::ones_like(a, s);
  }
  if (activation == Activation::Relu2) {
    return mx::multiply(number(2), mx::maximum(a, number(0), s), s);
  }
  if (activation == Activation::Gelu) {
    auto e = mx::erf(mx::divide(a, number(std::numbers::sqrt2), s), s);
    auto below = mx::multiply(mx::add(number(1), e, s), number(0.5), s);
    auto density = mx::exp(mx::multiply(mx::square(a, s), number(-0.5), s), s);
    auto root = number(std::sqrt(0.5 * std::numbers::inv_pi));
    return mx::add(
        below, mx::multiply(mx::multiply(a, density, s), root, s), s);
  }
  auto of = mx::sigmoid(a, s);
  auto of_sigmoid = mx::multiply(of, mx::subtract(number(1), of, s), s);
  return activation == Activation::Sigmoid
      ? of_sigmoid
      : mx::add(of, mx::multiply(a, of_sigmoid, s), s);
}

array gate_result(
    const NormSpec& spec,
    const array& y,
    const NormInputs& in,
    mx::Stream s) {
  if (!in[kGate]) {
    return activated(spec.activation, y, s);
  }
  bool early = spec.rounding == Rounding::Early;
  auto gate = early ? *in[kGate] : as_float(*in[kGate], s);
  return mx::multiply(y, activated(spec.activation, gate, s), s);
}

array gated_input(const NormSpec& spec, const NormInputs& in, mx::Stream s) {
  bool early = spec.rounding == Rounding::Early;
  auto gate = early ? *in[kGate] : as_float(*in[kGate], s);
  auto x = early ? in.x() : as_float(in.x(), s);
  return mx::multiply(x, activated(spec.activation, gate, s), s);
}

Gradients gated_vjp(
    const NormSpec& spec,
    const NormInputs& in,
    const array& cotangent,
    Operands wanted,
    mx::Stream stream) {
  PerOperand<std::optional<mx::Dtype>> dtypes;
  if (wanted.has(kWeight)) {
    dtypes[kWeight] = in[kWeight]->dtype();
  }
  if (!in[kGate]) {
    return activated_vjp(spec, in, cotangent, wanted, dtypes, stream);
  }
  const auto& own = *in[kGate];
  // Of a batch of examples it may be the same for each.
  bool whole = own.shape() == in.x().shape();
  auto gate = whole ? own : mx::broadcast_to(own, in.x().shape(), stream);
  if (whole) {
    dtypes[kGate] = gate.dtype();
  }
  auto gradients = norm_gradients(
      spec,
      {{kX, &in.x()},
       {kWeight, in[kWeight]},
       {kGate, &gate},
       {kCotangent, &cotangent}},
      wanted,
      dtypes,
      stream);
  if (gradients[kGate]) {
    gradients[kGate] = sum_to(*gradients[kGate], own.shape(), stream);
  }
  return gradients;
}

} // namespace mlx_norms
