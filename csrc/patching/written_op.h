// Copyright © 2026 mlx_norms contributors

#pragma once

#include "csrc/patching/written_norm.h"
#include "mlx/utils.h"

namespace mlx_norms {

// The spec of our norm, over whichever axis.
NormSpec spec_of(const WrittenNorm& norm);

// As a vector: a model may keep its parameters as [C, 1, 1].
OptionalArray as_vector(const array* parameter, mx::StreamOrDevice stream = {});

} // namespace mlx_norms
