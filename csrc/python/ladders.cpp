// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "csrc/ladders/layer_norm.h"
#include "csrc/ladders/sgemm.h"

namespace nb = nanobind;

namespace mlx_norms {

namespace {

using RungRow = std::tuple<std::string, std::string, std::vector<mx::Dtype>>;

std::vector<RungRow> rows(const std::vector<Rung>& rungs) {
  std::vector<RungRow> rows;
  for (const auto& rung : rungs) {
    rows.emplace_back(rung.name, rung.fixes, rung.dtypes);
  }
  return rows;
}

} // namespace

void bind_ladders(nb::module_& m) {
  m.def(
      "layer_norm_rungs",
      [] { return rows(layer_norm_rungs()); },
      "(name, fixes, dtypes) of each rung of layer norm, naive first.");
  m.def(
      "sgemm_rungs",
      [] { return rows(sgemm_rungs()); },
      "(name, fixes, dtypes) of each rung of SGEMM, naive first.");
}

} // namespace mlx_norms
