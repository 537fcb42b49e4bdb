// Copyright © 2026 mlx_norms contributors
//
// Where nodes of the primitives are built: MLX's ops take their place where the
// stream has no kernel, or none that can be trusted.

#pragma once

#include "csrc/norm.h"

namespace mlx_norms {

// {normalised, [sum]} of one tensor, or of each of several.
Arrays make_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    Arrays inputs,
    mx::Stream stream);

// {[input], [weight], [bias]} in `dtypes`.
Arrays make_norm_vjp(
    const NormVJPSpec& spec,
    const std::vector<mx::Dtype>& dtypes,
    Arrays inputs,
    mx::Stream stream);

} // namespace mlx_norms
