// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "csrc/patching/fuse_graph.h"
#include "csrc/patching/fuse_projections.h"
#include "csrc/patching/patched.h"
#include "csrc/patching/rope_of_norm.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

mx::array told(PatchedNorm norm, const nb::object& tell) {
  if (!tell.is_none()) {
    tell(text(norm.outcome));
  }
  return std::move(norm.normalized);
}

// An unchanged output is the object that was passed.
nb::list fuse_outputs(const nb::list& outputs, const Arrays& boundary) {
  auto old = nb::cast<Arrays>(outputs);
  auto fused = fuse_graph(old, boundary);
  nb::list results;
  for (size_t i = 0; i < old.size(); ++i) {
    bool same = fused[i].id() == old[i].id();
    results.append(same ? nb::object(outputs[i]) : nb::cast(fused[i]));
  }
  return results;
}

nb::dict counts() {
  auto counts = patch_counts();
  nb::dict reasons;
  int64_t passed_on = 0;
  for (int i = 0; i < kOutcomes; ++i) {
    auto outcome = static_cast<Outcome>(i);
    if (counts.outcomes[i] > 0) {
      reasons[text(outcome)] = counts.outcomes[i];
    }
    passed_on += is_passed_on(outcome) ? counts.outcomes[i] : 0;
  }
  auto fused = counts.outcomes[static_cast<int>(Outcome::Fused)];
  nb::dict all;
  all["reasons"] = reasons;
  all["fused"] = fused + counts.graph_pass;
  all["passed_on"] = passed_on;
  all["offsets"] = counts.offsets;
  all["projections"] = counts.projections;
  all["products"] = counts.products;
  all["ropes"] = counts.ropes;
  all["rope_pairs"] = counts.rope_pairs;
  return all;
}

} // namespace

void bind_patching(nb::module_& m) {
  nb::enum_<Fusion>(m, "Fusion")
      .value("NOW", Fusion::Now)
      .value("BY_GRAPH_PASS", Fusion::ByGraphPass)
      .value("NEVER", Fusion::Never);

  // Those of the layers that are replaced in Python.
  nb::enum_<Outcome>(m, "Outcome")
      .value("GROUPS", Outcome::Groups)
      .value("DTYPE_NOT_TAKEN", Outcome::DtypeNotTaken)
      .value("ARGUMENTS_NOT_TAKEN", Outcome::ArgumentsNotTaken);
  m.def(
      "count_outcome",
      [](Outcome outcome) {
        count(outcome);
        return text(outcome);
      },
      "outcome"_a,
      nb::sig("def count_outcome(outcome: Outcome) -> str"),
      "Counts the outcome of a call, and returns its text.");

  // After the first two, the arguments are those of mx.fast.
  m.def(
      "patched_rms_norm",
      [](Fusion fusion,
         const nb::object& tell,
         const mx::array& x,
         const mx::array* weight,
         float eps,
         mx::StreamOrDevice stream) {
        return told(patched_rms_norm(x, weight, eps, stream, fusion), tell);
      },
      "fusion"_a,
      "tell"_a.none(),
      "x"_a,
      "weight"_a.none(),
      "eps"_a,
      nb::kw_only(),
      "stream"_a = nb::none(),
      nb::sig(
          "def patched_rms_norm(fusion: Fusion, tell: object, x: mlx.core.array, weight: mlx.core.array | None, eps: float, *, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      "Replaces ``mx.fast.rms_norm``; calls ``tell`` with the outcome.");
  m.def(
      "patched_layer_norm",
      [](Fusion fusion,
         const nb::object& tell,
         const mx::array& x,
         const mx::array* weight,
         const mx::array* bias,
         float eps,
         mx::StreamOrDevice stream) {
        return told(
            patched_layer_norm(x, weight, bias, eps, stream, fusion), tell);
      },
      "fusion"_a,
      "tell"_a.none(),
      "x"_a,
      "weight"_a.none(),
      "bias"_a.none(),
      "eps"_a,
      nb::kw_only(),
      "stream"_a = nb::none(),
      nb::sig(
          "def patched_layer_norm(fusion: Fusion, tell: object, x: mlx.core.array, weight: mlx.core.array | None, bias: mlx.core.array | None, eps: float, *, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      "Replaces ``mx.fast.layer_norm``; calls ``tell`` with the outcome.");
  m.def(
      "patched_rope",
      [](Fusion fusion,
         const nb::object&,
         const mx::array& a,
         int dims,
         bool traditional,
         std::optional<float> base,
         float scale,
         std::variant<int, mx::array> offset,
         const mx::array* freqs,
         mx::StreamOrDevice stream) {
        return fusion != Fusion::Now ? std::nullopt
                                     : patched_rope(
                                           a,
                                           {.dims = dims,
                                            .traditional = traditional,
                                            .base = base,
                                            .scale = scale,
                                            .offset = std::move(offset),
                                            .freqs = freqs,
                                            .rounding = std::nullopt,
                                            .stream = stream});
      },
      "fusion"_a,
      "tell"_a.none(),
      "a"_a,
      "dims"_a,
      nb::kw_only(),
      "traditional"_a,
      "base"_a.none(),
      "scale"_a,
      "offset"_a,
      "freqs"_a.none() = nb::none(),
      "stream"_a = nb::none(),
      nb::sig(
          "def patched_rope(fusion: Fusion, tell: object, a: mlx.core.array, dims: int, *, traditional: bool, base: float | None, scale: float, offset: int | mlx.core.array, freqs: mlx.core.array | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array | None"),
      "Replaces ``mx.fast.rope`` of a pending norm; None: MLX has to compute "
      "it.");
  m.def(
      "fuse_graph",
      &fuse_outputs,
      "outputs"_a,
      "boundary"_a,
      nb::sig(
          "def fuse_graph(outputs: list[mlx.core.array], boundary: list[mlx.core.array]) -> list[mlx.core.array]"),
      "The outputs, with residual adds fused into norms; outputs that do not "
      "change are the same objects.");
  m.def(
      "fuse_projections",
      &fuse_projections,
      "roots"_a,
      nb::sig("def fuse_projections(roots: list[mlx.core.array]) -> int"),
      "Fuses norms with the matmuls that read them, in place, and takes other "
      "quantized products; returns how many norms it fused.");
  m.def("patch_counts", &counts, "The outcomes of patched calls.");
  m.def("reset_patch_counts", &reset_patch_counts, "Resets the counts.");
}

} // namespace mlx_norms
