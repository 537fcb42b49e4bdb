// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/group_norm/spec.h"

namespace mlx_norms {

// {normalized in `dtype`, [statistics]}, in MLX's ops, which compute in float32
// and round once.
Arrays fallback_group_norm(
    const GroupNormSpec& spec,
    mx::Dtype dtype,
    const Arrays& inputs,
    mx::Stream stream);

} // namespace mlx_norms
