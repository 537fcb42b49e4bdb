// Copyright © 2026 mlx_norms contributors

#include "csrc/ladders/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "csrc/ladders/rung.h"

namespace nb = nanobind;

namespace mlx_norms {

namespace {

using Listed = std::tuple<std::string, std::string, std::vector<mx::Dtype>>;

std::vector<Listed> listed(const std::vector<Rung>& rungs) {
  std::vector<Listed> list;
  for (const auto& rung : rungs) {
    list.emplace_back(rung.name, rung.fixes, rung.dtypes);
  }
  return list;
}

} // namespace

void bind_ladders(nb::module_& m) {
  m.def(
      "sgemm_rungs",
      [] { return listed(sgemm_rungs()); },
      nb::sig(
          "def sgemm_rungs() -> list[tuple[str, str, list[mlx.core.Dtype]]]"),
      "Name, what it fixes and dtypes of each rung of matmul's ladder.");
}

} // namespace mlx_norms
