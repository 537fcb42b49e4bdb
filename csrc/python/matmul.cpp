// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include "csrc/matmul/ops.h"

namespace nb = nanobind;

namespace mlx_norms {

void bind_matmul(nb::module_& m) {
  using M = MatmulArguments;
  static const Parameters<M> dense(
      {required<&M::a>("a"),
       required<&M::b>("b"),
       parameter<&M::kernel>("kernel"),
       parameter<&M::stream>("stream")},
      /* required= */ 2);
  def<&matmul>(m, "matmul", dense);
}

} // namespace mlx_norms
