// Copyright (c) 2026 mlx_norms contributors
//
// C = A B in blocks of 8x8, by tiles of C.
//
// All large matmuls use tiles of 64x64 with a depth of 16. For 192^3 in float32
// such a tile loads 0.5 blocks per multiply and reads 0.125 bytes of A and B
// from device memory per multiply-add; for 48x48x24 these are 0.667 and 0.167,
// for 64x32x32 0.75 and 0.188, and for 32x32x32 1 and 0.25. At most three
// threadgroups of any of them fit in 32 KB, of which 64x64x16 takes 10. Its
// smaller depth costs barriers: 8 per 64 of K, where the others have 4 or 5.
// With 32 rows or columns or fewer, half of such a tile or more would be
// wasted, so it is 32x32x32. (python tools counts.sgemm_ladder)

#include "kernels/matmul/blocked.h"

template [[host_name("simdgroup_blocked_64")]] [[kernel]]
decltype(simdgroup_blocked<64, 64, 16>) simdgroup_blocked<64, 64, 16>;

template [[host_name("simdgroup_blocked_32")]] [[kernel]]
decltype(simdgroup_blocked<32, 32, 32>) simdgroup_blocked<32, 32, 32>;
