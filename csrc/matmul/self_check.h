// Copyright © 2026 mlx_norms contributors

#pragma once

#include <functional>

#include "csrc/common/types.h"

namespace mlx_norms {

using KernelProduct =
    std::function<array(const array&, const array&, mx::Stream)>;

// Whether this kernel, gemv or else the blocked one, can be used for this dtype
// (see common/self_check.h).
bool agrees(
    const char* kernel,
    bool gemv,
    mx::Dtype dtype,
    const KernelProduct& product,
    mx::Stream stream);

} // namespace mlx_norms
