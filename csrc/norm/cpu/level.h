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
// Each for some of the rows that norm() takes.
void norm_gated_rows(const NormJob& job);
void norm_short_rows(const NormJob& job);
void norm_modulated_rows(const NormJob& job);
void norm_other_rows(const NormJob& job);
void norm_whole_rows(const NormJob& job);
void add_factored_row(const NormJob& job, int64_t row);

void norm_vjp(const NormVJPJob& job);
void vjp_of_gated_rows(const NormVJPJob& job);

void channel_norm(const ChannelNormJob& job);
void channel_norm_vjp(const ChannelNormVJPJob& job);

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
