// Copyright © 2026 mlx_norms contributors
//
// Norms of rows whose last axis is split over the members of a group: MLX's ops
// and one all-reduce of a scalar per row.

#pragma once

#include "csrc/norm/spec.h"

namespace mlx_norms {

// This member's part of the normalized rows. No residual, no bias.
mx::array sharded_rms_norm(
    const NormSpec& spec,
    mx::Dtype dtype,
    const NormInputs& in,
    const mx::distributed::Group& group,
    mx::Stream stream);

} // namespace mlx_norms
