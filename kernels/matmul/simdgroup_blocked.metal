// Copyright (c) 2026 mlx_norms contributors
//
// C = A B in blocks of 8x8, by tiles of C.

#include "kernels/matmul/blocked.h"

template [[host_name("simdgroup_blocked_64")]] [[kernel]]
decltype(simdgroup_blocked<64, 64, 16>) simdgroup_blocked<64, 64, 16>;

template [[host_name("simdgroup_blocked_32")]] [[kernel]]
decltype(simdgroup_blocked<32, 32, 32>) simdgroup_blocked<32, 32, 32>;
