// Copyright © 2026 mlx_norms contributors

#pragma once

// float16's largest finite value, where a clamped sum saturates.
static constexpr float kFloat16Max = 65504.0f;
