// Copyright © 2026 mlx_norms contributors

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "csrc/python/bindings.h"
#include "mlx/version.h"

namespace nb = nanobind;

NB_MODULE(_ext, m) {
  m.doc() = "mlx_norms: normalization kernels as MLX primitives";
  // The signatures name its types.
  nb::module_::import_("mlx.core");

  m.def(
      "mlx_version",
      &mlx::core::version,
      "The version of the MLX library loaded.");
  mlx_norms::bind_norms(m);
  mlx_norms::bind_group_norms(m);
  mlx_norms::bind_ropes(m);
  mlx_norms::bind_products(m);
  mlx_norms::bind_ladders(m);
  mlx_norms::bind_launch(m);
  mlx_norms::bind_patching(m);
  mlx_norms::bind_replacement(m);
  mlx_norms::bind_device(m);
  mlx_norms::bind_switches(m);
}
