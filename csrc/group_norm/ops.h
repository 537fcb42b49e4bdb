// Copyright © 2026 mlx_norms contributors

#pragma once

#include <tuple>
#include <variant>

#include "csrc/common/types.h"
#include "mlx/mlx.h"

namespace mlx_norms {

// The Python docstrings in csrc/python say what the arguments are.

array group_norm(
    const array& x,
    int num_groups,
    const array* weight,
    const array* bias,
    float eps,
    bool pytorch_compatible,
    const std::optional<std::string>& activation,
    const std::optional<mx::Dtype>& dtype,
    mx::StreamOrDevice stream);

array instance_norm(
    const array& x,
    const array* weight,
    const array* bias,
    float eps,
    const std::optional<mx::Dtype>& dtype,
    mx::StreamOrDevice stream);

// The normalized x or, in training with running statistics, it and the new
// ones.
std::variant<array, std::tuple<array, array, array>> batch_norm(
    const array& x,
    const array* weight,
    const array* bias,
    const array* mean,
    const array* var,
    float eps,
    bool training,
    float momentum,
    const std::optional<mx::Dtype>& dtype,
    mx::StreamOrDevice stream);

} // namespace mlx_norms
