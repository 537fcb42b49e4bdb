// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/linear/norm_linear.h"
#include "csrc/patching/pending_graph.h"

namespace mlx_norms {

// Whether a weight has been evaluated and can be read in place.
bool is_readable(const array& a);

// How the weight of a pending QuantizedMatmul is stored, if our kernels may
// read it. Its arrays are the node's inputs after x.
std::optional<Projection> stored_form(const array& product);

// Whether our product is known to be faster than MLX's: by tiles, as
// bench/quantized.py measured it on an H200.
bool is_faster(
    const Projection& form,
    const array& weight,
    int64_t rows,
    mx::Stream stream);

// Gives pending quantized products of few rows to our kernel, where that is
// known to be faster, each with the residual that is added to it if nothing
// else uses the product. In place, as fuse_projections. Returns their number.
int take_products(PendingGraph& graph);

// For tests: wherever the kernel takes them.
void set_products_anywhere(bool anywhere);
bool takes_products_anywhere();

} // namespace mlx_norms
