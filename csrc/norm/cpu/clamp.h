// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/common/float16.h"
#include "csrc/cpu/simd.h"

namespace {

// Lanes beyond +-65504 saturate, inf too; NaN stays NaN.
inline Floats clamp_half(Floats v) {
  Floats below = v > kFloat16Max ? splat(kFloat16Max) : v;
  return below < -kFloat16Max ? splat(-kFloat16Max) : below;
}

} // namespace
