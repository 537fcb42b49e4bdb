// Copyright © 2026 mlx_norms contributors
//
// The ops as C++ functions. The Python docstrings in csrc/python say what the
// arguments are. Null stands for an array that is not given.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mlx/mlx.h"

namespace mlx_norms {

namespace mx = mlx::core;

using OptionalDtype = std::optional<mx::Dtype>;
using OptionalString = std::optional<std::string>;
// An array or a number, or neither.
using OptionalTerm = std::optional<std::variant<mx::array, float>>;
using OptionalGroup = std::optional<mx::distributed::Group>;

// As MLX takes a number beside x: rounded to its dtype. Without one, 1.
float number_of(const OptionalTerm& factor, mx::Dtype dtype);

mx::array rms_norm(
    const mx::array& x,
    const mx::array* weight,
    float eps,
    float weight_offset = 0.0f,
    const OptionalString& rounding = {},
    const OptionalTerm& scale = {},
    const OptionalTerm& shift = {},
    const mx::array* gate = nullptr,
    const OptionalString& activation = {},
    bool norm_before_gate = true,
    int num_groups = 1,
    OptionalDtype dtype = {},
    const OptionalGroup& group = {},
    int axis = -1,
    mx::StreamOrDevice stream = {});

// One for each array, or none.
using Weights = std::optional<std::vector<std::optional<mx::array>>>;
using Multipliers = std::optional<std::vector<float>>;

std::vector<mx::array> rms_norms(
    const std::vector<mx::array>& xs,
    const Weights& weights,
    float eps,
    float weight_offset,
    const Multipliers& scales,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

std::vector<mx::array> l2_norms(
    const std::vector<mx::array>& xs,
    const Multipliers& scales,
    float eps,
    bool eps_inside,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

// rms_norm, or layer_norm with `center`, without the options of either, which
// take as long as the node. Nullopt: refused, and the op says why.
std::optional<mx::array> plain_norm(
    bool center,
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps);

mx::array l2_norm(
    const mx::array& x,
    float eps,
    bool eps_inside,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

mx::array layer_norm(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    float weight_offset = 0.0f,
    const OptionalString& rounding = {},
    const OptionalTerm& scale = {},
    const OptionalTerm& shift = {},
    const OptionalString& activation = {},
    OptionalDtype dtype = {},
    int axis = -1,
    mx::StreamOrDevice stream = {});

// {normalized, sum}
std::pair<mx::array, mx::array> add_rms_norm(
    const mx::array& x,
    const mx::array& residual,
    const mx::array* weight,
    float eps,
    float weight_offset,
    bool clamp,
    const OptionalString& rounding,
    const mx::array* residual2,
    const OptionalTerm& factor,
    const OptionalTerm& scale,
    const OptionalTerm& shift,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

// {normalized, sum}
std::pair<mx::array, mx::array> add_layer_norm(
    const mx::array& x,
    const mx::array& residual,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    float weight_offset,
    bool clamp,
    const OptionalString& rounding,
    const mx::array* residual2,
    const OptionalTerm& factor,
    const OptionalTerm& scale,
    const OptionalTerm& shift,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

mx::array head_rms_norm(
    const mx::array& x,
    const mx::array* weight,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

mx::array head_layer_norm(
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

// {normalized q, normalized k}
std::pair<mx::array, mx::array> qk_norm(
    const mx::array& q,
    const mx::array& k,
    const mx::array* q_weight,
    const mx::array* k_weight,
    float eps,
    float weight_offset,
    const OptionalString& rounding,
    OptionalDtype dtype,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
