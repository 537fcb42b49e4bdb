// Copyright © 2026 mlx_norms contributors
//
// The kernels of one instruction set, MLX_NORMS_LEVEL, for which each of their
// files is compiled. A row is loaded from memory once and then read from the
// cache. Sums are taken in one order and contraction is off, so every
// instruction set's are bit-identical.

#pragma once

#include "csrc/norm/cpu_kernels.h"

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

void norm(const NormJob& job);
void norm_any_rows(const NormJob& job);

void norm_vjp(const NormVJPJob& job);
void vjp_of_any_rows(const NormVJPJob& job);

void lane_statistics(const LaneStatisticsJob& job);
void lane_factors(const LaneFactorsJob& job);
void lane_norm(const LaneNormJob& job);
void lane_sums(const LaneVJPJob& job);
void lane_gradients(const LaneVJPJob& job);

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
