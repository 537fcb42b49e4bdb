// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/rung.h"

namespace mlx_norms {

const std::vector<Rung>& sgemm_rungs() {
  static const std::vector<Rung> rungs = {
      {"naive",
       "nothing yet: both factors of each product come from device memory",
       {mx::float32}},
      {"tile_16",
       "device reads: a group shares tiles of A and B in threadgroup memory",
       {mx::float32}},
      {"tile_32",
       "half of the device reads that were left, at the cost of occupancy",
       {mx::float32}},
      {"tile_threads",
       "threadgroup reads, waits at barriers: 4×4 sums in registers per thread",
       {mx::float32}},
      {"tile_simdgroup",
       "arithmetic: the matrix unit, kept hungry by two loads per multiply",
       {mx::float32}}};
  return rungs;
}

} // namespace mlx_norms
