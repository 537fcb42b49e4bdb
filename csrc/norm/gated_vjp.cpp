// Copyright © 2026 mlx_norms contributors

#include "csrc/common/sum.h"
#include "csrc/norm/gradients.h"
#include "csrc/norm/norm.h"

namespace mlx_norms {

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
  const auto& own = *in[kGate];
  // A batch of examples may have one for all.
  bool whole = own.shape() == in.x().shape();
  auto gate = whole ? own : mx::broadcast_arrays({own, in.x()}, stream)[0];
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
