// Copyright © 2026 mlx_norms contributors

#pragma once

#include <optional>
#include <string>
#include <utility>

#include "mlx/mlx.h"

namespace mlx_norms {

namespace mx = mlx::core;

// What every op of the family takes by name. See the Python docstrings.
struct NormOptions {
  float weight_offset = 0.0f;
  bool clamp = false;
  std::optional<std::string> rounding = std::nullopt;
  std::optional<mx::Dtype> dtype = std::nullopt;
  mx::StreamOrDevice stream = {};
};

mx::array rms_norm(
    const mx::array& x,
    const std::optional<mx::array>& weight,
    float eps,
    const NormOptions& options = {});

mx::array layer_norm(
    const mx::array& x,
    const std::optional<mx::array>& weight,
    const std::optional<mx::array>& bias,
    float eps,
    const NormOptions& options = {});

// {normalised, sum}
std::pair<mx::array, mx::array> add_rms_norm(
    const mx::array& x,
    const mx::array& residual,
    const std::optional<mx::array>& weight,
    float eps,
    const NormOptions& options = {});

std::pair<mx::array, mx::array> add_layer_norm(
    const mx::array& x,
    const mx::array& residual,
    const std::optional<mx::array>& weight,
    const std::optional<mx::array>& bias,
    float eps,
    const NormOptions& options = {});

mx::array head_rms_norm(
    const mx::array& x,
    const std::optional<mx::array>& weight,
    float eps,
    const NormOptions& options = {});

std::pair<mx::array, mx::array> qk_norm(
    const mx::array& q,
    const mx::array& k,
    const std::optional<mx::array>& q_weight,
    const std::optional<mx::array>& k_weight,
    float eps,
    const NormOptions& options = {});

} // namespace mlx_norms
