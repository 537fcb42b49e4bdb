// Copyright © 2026 mlx_norms contributors

#include "csrc/norm/cpu/added_row.h"
#include "csrc/norm/cpu/level.h"
#include "csrc/norm/cpu/modulation.h"

namespace {

template <typename T>
T element_of(const Row<T>&);

// Adds the second residual to a row's first sum, and stores.
void add_second_residual(const NormJob& job, int64_t row, const float* first) {
  with_type(job.sum.type, [&](auto sum) {
    using S = typename decltype(sum)::type;
    auto* to = static_cast<S*>(job.sum.data) + row * job.width;
    with_type(job.in[kResidual2].type, [&](auto residual2) {
      Row<typename decltype(residual2)::type> added(job.in[kResidual2], row);
      for_vectors(job.width, [=](int64_t i, auto extent) {
        store(to + i, load(first + i) + added(i, extent), extent);
      });
    });
  });
}

} // namespace

namespace mlx_norms::cpu::MLX_NORMS_LEVEL {

// Stores the sum of a row and its factor's products, or the product of both;
// with a second residual, the sum of that and of the rounded first one.
void add_factored_row(const NormJob& job, int64_t row) {
  auto* factor = factor_of(job);
  with_added_row(job, [&]<typename Added>(Type<Added>) {
    Added to(job, row);
    using X = decltype(element_of(to.x));
    bool rounds = job.round_factored;
    if (job.in[kResidual2].data) {
      float* first = job.scratch;
      for_vectors(job.width, [=](int64_t i, auto extent) {
        Floats v = to.x(i, extent) * load(factor + i);
        v = (rounds ? round_to<X>(v) : v) + to.residual(i, extent);
        store(first + i, to.rounded(v));
      });
      return add_second_residual(job, row, first);
    }
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
}

} // namespace mlx_norms::cpu::MLX_NORMS_LEVEL
