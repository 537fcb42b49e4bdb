// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/cpu/added_row.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/modulation.h"

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

// Stores the sum of a row and its factor's products, or the product of both.
void add_factored_row(const NormJob& job, int64_t row) {
  auto* factor = factor_of(job);
  with_type(job.in[kX].type, [&](auto x) {
    using X = typename decltype(x)::type;
    with_type(job.in[kResidual].type, [&](auto residual) {
      AddedRow<X, typename decltype(residual)::type> to(job, row);
      bool rounds = job.round_factored;
      if (job.factor_of_sum) {
        for_vectors(job.width, [=](int64_t i, auto extent) {
          Floats v = to.value(i, extent) * load(factor + i);
          store(to.sum + i, to.rounded(v), extent);
        });
        return;
      }
      for_vectors(job.width, [=](int64_t i, auto extent) {
        Floats v = to.x(i, extent) * load(factor + i);
        v = (rounds ? round_to<X>(v) : v) + to.residual(i, extent);
        store(to.sum + i, to.rounded(v), extent);
      });
    });
  });
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
