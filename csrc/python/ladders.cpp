// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include <nanobind/stl/tuple.h>

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

  using N = LayerNormByRung;
  static const Parameters<N> of_norm(
      {required<&N::x>("x"),
       parameter<&N::weight>("weight"),
       parameter<&N::bias>("bias"),
       parameter<&N::eps>("eps"),
       parameter<&N::rung>("rung"),
       parameter<&N::stream>("stream")},
      /* required= */ 1);
  def<&layer_norm_by_rung>(m, "layer_norm_by_rung", of_norm);
  using P = SgemmByRung;
  static const Parameters<P> of_product(
      {required<&P::a>("a"),
       required<&P::b>("b"),
       parameter<&P::rung>("rung"),
       parameter<&P::stream>("stream")},
      /* required= */ 2);
  def<&sgemm_by_rung>(m, "sgemm_by_rung", of_product);
}

} // namespace mlx_norms
