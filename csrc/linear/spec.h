// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/linear/projection.h"
#include "csrc/norm/spec.h"

namespace mlx_norms {

// A norm and the projections of its output or, without a norm, one projection,
// to which the residual is then added.
struct NormLinearSpec {
  NormSpec norm = {};
  std::vector<Projection> projections; // 1 to 4
  bool gated = false; // two, of one shape: silu(first) * second
  bool normed = true;

  bool operator==(const NormLinearSpec&) const = default;

  int n_projected() const {
    return gated ? 1 : static_cast<int>(projections.size());
  }
  bool returns_sum() const {
    return normed && norm.has(kResidual);
  }
};

// A quantized product without a norm, and its inputs.
struct QuantizedProduct {
  NormLinearSpec spec;
  Arrays inputs;

  QuantizedProduct(
      const Projection& form,
      const array& x,
      const array* residual, // null: none
      const array& weight,
      const array& scales,
      const array& biases)
      : spec{.projections = {form}, .normed = false} {
    spec.norm.operands.set(kResidual, residual != nullptr);
    inputs.reserve(5);
    for (auto* a : {&x, residual, &weight, &scales, &biases}) {
      if (a) {
        inputs.push_back(*a);
      }
    }
  }
};

// The inputs of each projection.
inline std::vector<ProjectionInputs> projection_inputs(
    const NormLinearSpec& spec,
    const Arrays& inputs) {
  std::vector<ProjectionInputs> all;
  all.reserve(spec.projections.size());
  auto* first = inputs.data() + spec.norm.n_inputs();
  for (const auto& p : spec.projections) {
    all.emplace_back(p, first);
    first += p.n_inputs();
  }
  return all;
}

} // namespace mlx_norms
