// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/ops.h"

#include "csrc/common/checks.h"
#include "csrc/linear/checks.h"
#include "csrc/linear/norm_linear.h"
#include "csrc/norm/checks.h"

namespace mlx_norms {

namespace {

constexpr size_t kMaxWeights = 4;

// Checks the arrays of the projections and appends them to `inputs`.
std::vector<Projection> take_projections(
    const char* op,
    const NormLinearArguments& a,
    int length,
    Arrays& inputs) {
  auto n = a.weights.size();
  if (n < 1 || n > kMaxWeights) {
    refuse(
        op,
        "weights must be of 1 to " + std::to_string(kMaxWeights) +
            " projections but has " + std::to_string(n) + ".");
  }
  if (a.biases && a.biases->size() != n) {
    refuse(
        op,
        "biases must have an array or None for each of the " +
            std::to_string(n) + " weights but has " +
            std::to_string(a.biases->size()) + ".");
  }
  std::vector<Projection> projections;
  Arrays first_parts;
  for (size_t i = 0; i < n; ++i) {
    const auto& weight = a.weights[i];
    auto* bias = a.biases ? pointer_to((*a.biases)[i]) : nullptr;
    auto p = check_weight(op, nth("weights", i, n), weight, length);
    p.bias = bias != nullptr;
    inputs.insert(inputs.end(), weight.begin(), weight.end());
    if (bias) {
      check_projection_bias(op, nth("biases", i, n), *bias, weight[0]);
      inputs.push_back(*bias);
    }
    projections.push_back(p);
    first_parts.push_back(weight[0]);
  }
  if (a.gated) {
    check_gated(op, first_parts);
  }
  return projections;
}

Arrays norm_linear(const char* op, bool center, const NormLinearArguments& a) {
  NormInputs in{
      {kX, a.x},
      {kResidual, a.residual},
      {kWeight, a.norm_weight},
      {kBias, a.norm_bias}};
  check_inputs(op, in, /* heads= */ false, "norm_");
  // Late rounding: one launch does not round the normalized row, two steps
  // round it once.
  auto norm = spec_of(op, center, in, a.eps, a.weight_offset, "norm_");
  auto inputs = in.arrays();
  auto projections = take_projections(op, a, in.x().shape(-1), inputs);
  NormLinearSpec spec{norm, std::move(projections), a.gated};
  return make_norm_linear(spec, std::move(inputs), mx::to_stream(a.stream));
}

} // namespace

Arrays rms_norm_linear(const NormLinearArguments& arguments) {
  return norm_linear("rms_norm_linear", /* center= */ false, arguments);
}

Arrays layer_norm_linear(const NormLinearArguments& arguments) {
  return norm_linear("layer_norm_linear", /* center= */ true, arguments);
}

} // namespace mlx_norms
