// Copyright © 2026 mlx_norms contributors
//
// How threads share the samples of a group norm, or the chunks of few samples.

#pragma once

#include "csrc/cpu/row_blocks.h"
#include "csrc/group_norm/cpu_statistics.h"

namespace mlx_norms::cpu {

// What is computed, in the order of the functions, which all threads call.
// `vectors` are a sample's rows of each channel, `partials` those of a chunk
// or, for merge, of all chunks of a sample. Rows of x are counted over all
// samples.
class GroupWork {
 public:
  virtual ~GroupWork() = default;

  void run() const;

 protected:
  // Without rows of partials nothing is added up and merged.
  GroupWork(
      const GroupGeometry& of,
      int vector_rows,
      int partial_rows,
      bool applies = true)
      : of(of),
        vector_rows_(vector_rows),
        partial_rows_(partial_rows),
        applies_(applies) {}

  virtual void prepare(int64_t sample, float* vectors) const = 0;
  virtual void add_up(
      int64_t row,
      int64_t end,
      const float* vectors,
      float* partials) const = 0;
  virtual void merge(int64_t sample, const float* partials, float* vectors)
      const = 0;
  virtual void apply(int64_t row, int64_t end, const float* vectors) const = 0;

  const GroupGeometry of;

 private:
  void run_samples() const;
  void share_samples(int64_t first, int64_t n) const;

  int vector_rows_;
  int partial_rows_;
  bool applies_;
};

} // namespace mlx_norms::cpu
