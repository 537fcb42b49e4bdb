// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/rung.h"

namespace mlx_norms {

// The rungs of kernels/ladders/layer_norm/ladder.h.
const std::vector<Rung>& layer_norm_rungs() {
  using mx::bfloat16;
  using mx::float16;
  using mx::float32;
  static const std::vector<Rung> rungs{
      {"naive",
       "nothing: a thread per row, in groups of 1024, and three passes",
       {float32}},
      {"naive_32", "occupancy alone: groups of 32, on more cores", {float32}},
      {"shared",
       "coalescing: a threadgroup per row, whose sums are trees in threadgroup memory",
       {float32}},
      {"simd", "the tree's barriers: simd_sum, and one exchange", {float32}},
      {"vectorized", "the number of loads: four elements each", {float32}},
      {"fused",
       "a pass: the variance is E[x^2] - E[x]^2, lost beside a large mean",
       {float32}},
      {"robust",
       "rows of any length: unaligned loads of four, and a tail",
       {float32}},
      {"welford",
       "a large mean, in one pass; and takes float16",
       {float32, float16}},
      {"regtiled", "the second read: the row stays in registers", {float32}},
      {"ours",
       "the rounding of the mean, and the barriers of short rows",
       {float32, float16, bfloat16}}};
  return rungs;
}

} // namespace mlx_norms
