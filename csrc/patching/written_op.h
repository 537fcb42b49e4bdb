// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/patching/written_norm.h"
#include "mlx/utils.h"

namespace mlx_norms {

// The spec of our norm, over whichever axis.
NormSpec spec_of(const WrittenNorm& norm);

// The norm by this package's op, with parameters of any number of axes.
array compute(
    const WrittenNorm& norm,
    const array& x,
    const array* weight,
    const array* bias,
    const array* factor = nullptr);

// As a vector: a model may keep its parameters as [C, 1, 1].
OptionalArray as_vector(const array* parameter, mx::StreamOrDevice stream = {});

// The result times the norm's number and the factor.
array times_factors(const WrittenNorm& norm, array y, const array* factor);

} // namespace mlx_norms
