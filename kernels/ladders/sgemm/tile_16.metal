// Copyright (c) 2026 mlx_norms contributors
//
// Square tiles of 16, a thread per element.

#include "kernels/ladders/sgemm/square_tiles.h"

template [[host_name("sgemm_tile_16")]] [[kernel]]
decltype(sgemm_square_tiles<16>) sgemm_square_tiles<16>;
