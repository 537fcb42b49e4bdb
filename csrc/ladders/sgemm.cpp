// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/rung.h"

namespace mlx_norms {

const std::vector<Rung>& sgemm_rungs() {
  static const std::vector<Rung> rungs = {
      {"naive",
       "nothing yet: both factors come from device memory",
       {mx::float32}},
      {"tile_16",
       "device reads: a group shares tiles of A and B",
       {mx::float32}},
      {"tile_32",
       "device reads, by half again, at the cost of occupancy",
       {mx::float32}},
      {"tile_threads",
       "barriers and threadgroup reads: 4×4 sums in registers",
       {mx::float32}},
      {"tile_simdgroup",
       "arithmetic: the matrix unit multiplies 8×8 blocks",
       {mx::float32}}};
  return rungs;
}

} // namespace mlx_norms
