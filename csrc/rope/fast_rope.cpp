// Copyright © 2026 mlx_norms contributors

#include "csrc/rope/fast_rope.h"

#include "mlx/fast.h"

namespace mlx_norms {

array fast_rope(
    const array& x,
    int dims,
    bool traditional,
    std::optional<float> base,
    float scale,
    const array& offset,
    const std::optional<array>& freqs,
    mx::Stream s) {
  return mx::fast::rope(x, dims, traditional, base, scale, offset, freqs, s);
}

} // namespace mlx_norms
