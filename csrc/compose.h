// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/norm_spec.h"

namespace mlx_norms {

// One normalised tensor in MLX's ops: {normalised, [sum]}.
std::vector<mx::array> compose_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    mx::Stream stream);

// Its gradients: {[input], [weight], [bias]} in `dtypes`.
std::vector<mx::array> compose_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    const NormVJPInputs& in,
    mx::Stream stream);

} // namespace mlx_norms
