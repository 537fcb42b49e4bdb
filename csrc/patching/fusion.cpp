// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/fusion.h"

#include <algorithm>

namespace mlx_norms {

Outcome fusible(
    const array& sum,
    const Arrays& parameters,
    mx::Stream stream,
    const InputsOf& inputs_of) {
  if (!is_pending_sum(sum)) {
    return Outcome::NotASum;
  }
  if (sum.primitive().stream() != stream) {
    return Outcome::OtherStream;
  }
  const auto& operands = sum.inputs();
  if (std::any_of(operands.begin(), operands.end(), repeats_along_row)) {
    return Outcome::OperandRepeated;
  }
  for (const auto& parameter : parameters) {
    auto above = look_above(parameter, sum, inputs_of);
    if (above.meets) {
      return Outcome::ParameterOfSum;
    }
    if (!above.ends) {
      return Outcome::ParameterGraphLong;
    }
    // The sum may outlive the transform that the parameter belongs to.
    if (above.traced && !sum.is_tracer()) {
      return Outcome::ParameterTraced;
    }
  }
  return Outcome::Fused;
}

array fuse_in_place(
    const NormSpec& spec,
    mx::Dtype dtype,
    array sum,
    Arrays inputs,
    mx::Stream stream) {
  auto node = std::make_shared<Norm>(stream, spec, dtype);
  array normalised(sum.shape(), dtype, node, inputs);
  sum.primitive_ptr() = node;
  sum.inputs() = std::move(inputs);
  normalised.set_siblings({sum}, 0);
  sum.set_siblings({normalised}, 1);
  return normalised;
}

} // namespace mlx_norms
