// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/fusion.h"

namespace mlx_norms {

namespace {

// Outcome::Fused, or why the norm's node cannot compute this sum, too: all that
// uses `sum` would come to depend on the norm's parameters.
Outcome fusible(
    const array& sum,
    const std::optional<Prologue>& prologue,
    const Arrays& parameters,
    mx::Stream stream,
    const InputsOf& inputs_of,
    int walk) {
  if (!prologue) {
    return Outcome::Alone;
  }
  if (sum.primitive().stream() != stream) {
    return Outcome::OtherStream;
  }
  const auto& residual2 = prologue->residual2;
  if (repeats_along_row(prologue->x) || repeats_along_row(prologue->residual) ||
      (residual2 && repeats_along_row(*residual2))) {
    return Outcome::OperandRepeated;
  }
  for (const auto& parameter : parameters) {
    auto above = look_above(parameter, sum, inputs_of, walk);
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

} // namespace

std::pair<std::optional<FusedNorm>, Outcome> fused_norm(
    NormSpec spec,
    mx::Dtype dtype,
    const array& sum,
    const Arrays& parameters,
    mx::Stream stream,
    const InputsOf& inputs_of,
    const HeldOnce& held_once,
    int walk) {
  auto prologue = prologue_of(sum, spec.rounding, stream, held_once);
  auto outcome = fusible(sum, prologue, parameters, stream, inputs_of, walk);
  if (outcome != Outcome::Fused) {
    return {std::nullopt, outcome};
  }
  prologue->set(spec);
  Arrays inputs;
  inputs.reserve(4 + parameters.size());
  inputs.push_back(std::move(prologue->x));
  inputs.push_back(std::move(prologue->residual));
  if (prologue->residual2) {
    inputs.push_back(std::move(*prologue->residual2));
  }
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  if (prologue->factor) {
    inputs.push_back(std::move(*prologue->factor));
  }
  Norm norm(spec, dtype, inputs);
  if (!runs_kernel(norm, inputs, stream)) {
    return {std::nullopt, Outcome::FusedNoKernel};
  }
  auto node = std::make_shared<Node<Norm>>(stream, std::move(norm));
  return {FusedNorm{std::move(node), std::move(inputs)}, outcome};
}

} // namespace mlx_norms
