// Copyright © 2026 mlx_norms contributors
//
// Which rows a norm has.

#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/modulation.h"
#include "csrc/norm/cpu/rows.h"

namespace {

bool is_gated(const NormJob& job) {
  return job.in[kGate].data || job.activation != mlx_norms::Activation::None;
}

// Whether a second residual can be read in place, or there is none.
bool adds_whole_rows(const NormJob& job) {
  const auto& residual2 = job.in[kResidual2];
  return !residual2.data ||
      (residual2.type == job.normalized.type &&
       are_whole_rows(residual2, job.width));
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm(const NormJob& job) {
  if (is_gated(job)) {
    return norm_gated_rows(job);
  }
  if (job.width <= kWidth) {
    return norm_short_rows(job);
  }
  bool whole = are_whole_rows(job) && adds_whole_rows(job);
  if (is_modulated(job) || is_factored(job) ||
      (is_summed_before(job) && !whole)) {
    return norm_modulated_rows(job);
  }
  if (!whole) {
    return norm_other_rows(job);
  }
  norm_whole_rows(job);
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
