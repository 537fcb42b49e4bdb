// Copyright (c) 2026 mlx_norms contributors

#pragma once

#include "kernels/common/float_types.h"

constant int matmul_type [[function_constant]]; // FloatType of A, B and C

inline device const uchar* matmul_at(device const uchar* data, long at) {
  return data + at * size_of(matmul_type);
}
