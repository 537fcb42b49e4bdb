// Copyright (c) 2026 mlx_norms contributors
//
// C = A B in blocks of 8x8, by tiles of C.
//
// A tile of 64x64 over 16 products is what all large products take: of 192^3 it
// loads half a block a multiply and asks device memory for 0.125 bytes of A and
// B a multiply-add in float32, where 48x48x24 takes 0.667 and 0.167, 64x32x32
// takes 0.75 and 0.188, and 32x32x32 takes 1 and 0.25; and of none do more than
// three groups find room in 32 KB, of which it takes 10. Its smaller depth
// costs barriers, 8 for 64 of K, where the others have 4 or 5. Up to 32 rows or
// columns, half of such a tile or more would be multiplied for nothing: then it
// is 32x32x32. (python tools counts.sgemm_ladder)

#include "kernels/matmul/blocked.h"

template [[host_name("simdgroup_blocked_64")]] [[kernel]]
decltype(simdgroup_blocked<64, 64, 16>) simdgroup_blocked<64, 64, 16>;

template [[host_name("simdgroup_blocked_32")]] [[kernel]]
decltype(simdgroup_blocked<32, 32, 32>) simdgroup_blocked<32, 32, 32>;
