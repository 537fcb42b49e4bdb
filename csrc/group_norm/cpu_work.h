// Copyright © 2026 mlx_norms contributors
//
// How threads share the samples of a group norm, or the chunks of few samples.

#pragma once

#include <functional>

#include "csrc/cpu/row_blocks.h"
#include "csrc/group_norm/cpu_statistics.h"

namespace mlx_norms::cpu {

// What is computed, in this order. `vectors` are a sample's rows of each
// channel, `partials` those of a chunk or, for merge, of all chunks of a
// sample. Rows of x are counted over all samples.
struct GroupWork {
  int vector_rows;
  int partial_rows; // 0: nothing is added up and merged
  std::function<void(int64_t sample, float* vectors)> prepare;
  std::function<
      void(int64_t row, int64_t end, const float* vectors, float* partials)>
      add_up;
  std::function<void(int64_t sample, const float* partials, float* vectors)>
      merge;
  std::function<void(int64_t row, int64_t end, const float* vectors)>
      apply; // may be absent

  void run(const GroupGeometry& of) const;

 private:
  void run_samples(const GroupGeometry& of) const;
  void share_samples(const GroupGeometry& of, int64_t first, int64_t n) const;
};

} // namespace mlx_norms::cpu
