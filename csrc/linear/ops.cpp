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
    const Projected& projected,
    int length,
    Arrays& inputs) {
  auto n = projected.weights.size();
  if (n < 1 || n > kMaxWeights) {
    refuse(
        op,
        "weights must be of 1 to " + std::to_string(kMaxWeights) +
            " projections but has " + std::to_string(n) + ".");
  }
  if (projected.biases.size() != n) {
    refuse(
        op,
        "biases must have an array or None for each of the " +
            std::to_string(n) + " weights but has " +
            std::to_string(projected.biases.size()) + ".");
  }
  std::vector<Projection> projections;
  Arrays first_parts;
  for (size_t i = 0; i < n; ++i) {
    const auto& weight = projected.weights[i];
    const auto& bias = projected.biases[i];
    auto p = check_weight(op, nth("weights", i, n), weight, length);
    p.bias = bias.has_value();
    inputs.insert(inputs.end(), weight.begin(), weight.end());
    if (bias) {
      check_projection_bias(op, nth("biases", i, n), *bias, weight[0]);
      inputs.push_back(*bias);
    }
    projections.push_back(p);
    first_parts.push_back(weight[0]);
  }
  if (projected.gated) {
    check_gated(op, first_parts);
  }
  return projections;
}

Arrays norm_linear(
    const char* op,
    bool center,
    const NormInputs& in,
    const Projected& projected,
    float eps,
    float weight_offset,
    mx::StreamOrDevice stream) {
  check_inputs(op, in, "norm_");
  // Late rounding: one launch does not round the normalized row, two steps
  // round it once.
  auto norm = spec_of(op, center, in, eps, weight_offset, "norm_");
  auto inputs = in.arrays();
  auto projections = take_projections(op, projected, in.x().shape(-1), inputs);
  NormLinearSpec spec{norm, std::move(projections), projected.gated};
  return make_norm_linear(spec, std::move(inputs), mx::to_stream(stream));
}

} // namespace

Arrays rms_norm_linear(
    const array& x,
    const array* norm_weight,
    const Projected& projected,
    float eps,
    const array* residual,
    float weight_offset,
    mx::StreamOrDevice stream) {
  return norm_linear(
      "rms_norm_linear",
      /* center= */ false,
      {{kX, &x}, {kResidual, residual}, {kWeight, norm_weight}},
      projected,
      eps,
      weight_offset,
      stream);
}

Arrays layer_norm_linear(
    const array& x,
    const array* norm_weight,
    const array* norm_bias,
    const Projected& projected,
    float eps,
    const array* residual,
    mx::StreamOrDevice stream) {
  return norm_linear(
      "layer_norm_linear",
      /* center= */ true,
      {{kX, &x},
       {kResidual, residual},
       {kWeight, norm_weight},
       {kBias, norm_bias}},
      projected,
      eps,
      /* weight_offset= */ 0.0f,
      stream);
}

} // namespace mlx_norms
