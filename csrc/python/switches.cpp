// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include "csrc/gpu/geometry.h"
#include "csrc/linear/plan.h"
#include "csrc/matmul/plan.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

void bind_switches(nb::module_& m) {
  m.def(
      "set_vectors",
      &set_vectors,
      "backward"_a,
      "vectors"_a,
      "Forces the vectors per thread of CUDA kernels, for benchmarks; 0: none.");
  m.def(
      "set_tiles_anywhere",
      &set_tiles_anywhere,
      "anywhere"_a,
      "Makes gemv multiply by tiles even without matrix units, for tests.");
  m.def(
      "set_product_tiles_anywhere",
      &set_product_tiles_anywhere,
      "anywhere"_a,
      "Likewise quantized_matmul.");
}

} // namespace mlx_norms
