// Copyright © 2026 mlx_norms contributors

#include "csrc/common/activations.h"
#include "csrc/common/sum.h"
#include "csrc/norm/fallback.h"
#include "csrc/norm/gradients.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

namespace {

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
      mx::astype(cotangent, mx::float32, stream),
      slope(spec.activation, y, stream),
      stream);
  return norm_gradients(
      plain,
      {{kX, &in.x()}, {kWeight, in[kWeight]}, {kCotangent, &g}},
      wanted,
      dtypes,
      stream);
}

} // namespace

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
    gradients[kGate] = sum_to(*gradients[kGate], own, stream);
  }
  return gradients;
}

} // namespace mlx_norms
