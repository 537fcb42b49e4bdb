// Copyright © 2026 mlx_norms contributors

#include "csrc/cpu/clean.h"
#include "csrc/norm/cpu/compensated_sum.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/rows.h"

namespace {

void add_sums(CompensatedSum to, CompensatedSum from, int64_t size) {
  add_partial(from, size);
  for (int64_t i = 0; i < size; i += kWidth) {
    add_compensated(to, i, load(from.sum + i));
  }
}

void load_to(const RowsIn& rows, int64_t row, int64_t width, float* to) {
  load_rows(rows, row, 1, width, to);
}

void store_from(const float* from, int64_t width, const RowsOut& to) {
  store_rows(from, width, to, 0, 1);
}

} // namespace

namespace mlx_norms::cpu {

[[gnu::visibility("default")]] extern const Kernels MLX_NORMS_KERNELS;
const Kernels MLX_NORMS_KERNELS = {
    clean<MLX_NORMS_LEVEL::norm>,
    clean<MLX_NORMS_LEVEL::norm_vjp>,
    clean<MLX_NORMS_LEVEL::lane_statistics>,
    clean<MLX_NORMS_LEVEL::lane_factors>,
    clean<MLX_NORMS_LEVEL::lane_norm>,
    clean<MLX_NORMS_LEVEL::lane_sums>,
    clean<MLX_NORMS_LEVEL::lane_gradients>,
    clean<add_sums>,
    clean<load_to>,
    clean<store_from>};

} // namespace mlx_norms::cpu
