// Copyright © 2026 mlx_norms contributors

#pragma once

#include <functional>

#include "csrc/common/types.h"

namespace mlx_norms {

using KernelProduct =
    std::function<array(const array&, const array&, mx::Stream)>;

struct ProductSizes {
  int64_t rows;
  int64_t columns;
  int64_t depth;
};

// Whether this kernel, gemv or else the blocked one, can be used for products
// of these sizes, of dense or transposed factors (see common/self_check.h).
bool agrees(
    const char* kernel,
    bool gemv,
    const ProductSizes& sizes,
    mx::Dtype dtype,
    const KernelProduct& product,
    mx::Stream stream);

} // namespace mlx_norms
