// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "csrc/gpu/choices.h"
#include "csrc/gpu/geometry.h"
#include "csrc/gpu/recorded.h"
#include "csrc/linear/plan.h"
#include "csrc/matmul/plan.h"
#include "csrc/patching/plans.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

// A switch that plans depend on: recorded ones were made before.
template <typename... Args>
auto of_plans(void (*set)(Args...)) {
  return [set](Args... args) {
    set(args...);
    forget_recorded_calls();
  };
}

} // namespace

void bind_switches(nb::module_& m) {
  m.def(
      "launches_encoded_again",
      [] { return launches_encoded_again(); },
      "How many launches this thread has encoded by a plan that was recorded, "
      "for tests.");
  m.def(
      "set_vectors",
      of_plans(set_vectors),
      "backward"_a,
      "vectors"_a,
      "Forces the vectors per thread of CUDA kernels, for benchmarks; 0: none.");
  m.def(
      "set_tiles_anywhere",
      of_plans(set_tiles_anywhere),
      "anywhere"_a,
      "Makes gemv and quantized_matmul multiply by tiles even without matrix "
      "units, for tests.");
  m.def(
      "set_product_simds",
      of_plans(set_product_simds),
      "simds"_a,
      "Forces the SIMD-groups of a quantized product's threadgroups, for "
      "benchmarks; 0: as measured.");
  m.def(
      "set_product_rows",
      of_plans(set_product_rows),
      "rows"_a,
      "Forces products of up to so many rows to be one launch, for benchmarks; "
      "0: as chosen.");
  m.def(
      "set_choice",
      of_plans(set_choice),
      "name"_a,
      "value"_a = nb::none(),
      "Forces one of the choices for a generation of Apple's GPUs, for "
      "benchmarks (csrc/gpu/choices.h); None: as in the table.");
  m.def(
      "set_products_anywhere",
      &set_products_anywhere,
      "anywhere"_a,
      "Makes the pass before evaluation take quantized products whether they "
      "are known to be faster or not, for tests and measurements.");
}

} // namespace mlx_norms
