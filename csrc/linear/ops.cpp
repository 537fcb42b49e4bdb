// Copyright © 2026 mlx_norms contributors

#include "csrc/linear/ops.h"

#include "csrc/common/checks.h"
#include "csrc/linear/checks.h"
#include "csrc/linear/primitive.h"

namespace mlx_norms {

namespace {

constexpr size_t kMostWeights = 4;

// The arrays of the norm.
struct Operands {
  const array& x;
  const array* residual;
  const array* weight;
  const array* bias;
};

// Checks the norm's arrays and puts them into `inputs`.
NormSpec take_norm(
    const char* op,
    bool centre,
    const Operands& operands,
    float eps,
    float weight_offset,
    Arrays& inputs) {
  auto& [x, residual, weight, bias] = operands;
  if (!(eps >= 0)) {
    refuse(op, "eps must not be negative but is " + text(eps) + ".");
  }
  check_rows(op, "x", x);
  inputs.push_back(x);
  if (residual) {
    check_same_shape(op, "residual", *residual, x);
    inputs.push_back(*residual);
  }
  if (weight) {
    check_vector(op, "norm_weight", *weight, x);
    inputs.push_back(*weight);
  } else if (weight_offset != 0) {
    refuse(
        op,
        "weight_offset is " + text(weight_offset) +
            " but there is no norm_weight to add it to.");
  }
  if (bias) {
    check_vector(op, "norm_bias", *bias, x);
    inputs.push_back(*bias);
  }
  // Late: in one launch the normalised row is not rounded, and here but once.
  return NormSpec{
      .centre = centre,
      .residual = residual != nullptr,
      .weight = weight != nullptr,
      .bias = bias != nullptr,
      .rounding = Rounding::Late,
      .weight_offset = weight_offset,
      .eps = eps};
}

// Likewise those of the projections.
std::vector<Projection> take_projections(
    const char* op,
    const Projected& projected,
    int length,
    Arrays& inputs) {
  auto n = projected.weights.size();
  if (n < 1 || n > kMostWeights) {
    refuse(
        op,
        "weights must be of 1 to " + std::to_string(kMostWeights) +
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
    bool centre,
    const Operands& operands,
    const Projected& projected,
    float eps,
    float weight_offset,
    mx::StreamOrDevice stream) {
  Arrays inputs;
  auto norm = take_norm(op, centre, operands, eps, weight_offset, inputs);
  auto projections =
      take_projections(op, projected, operands.x.shape(-1), inputs);
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
      /* centre= */ false,
      {x, residual, norm_weight, nullptr},
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
      /* centre= */ true,
      {x, residual, norm_weight, norm_bias},
      projected,
      eps,
      /* weight_offset= */ 0.0f,
      stream);
}

} // namespace mlx_norms
