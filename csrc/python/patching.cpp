// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "csrc/patching/pass.h"
#include "csrc/patching/patched.h"
#include "csrc/patching/report.h"
#include "csrc/python/trees.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

Arrays as_arrays(const std::vector<nb::handle>& objects) {
  Arrays arrays;
  arrays.reserve(objects.size());
  for (auto object : objects) {
    arrays.push_back(nb::cast<mx::array>(object));
  }
  return arrays;
}

nb::list tree_arrays(nb::handle tree) {
  nb::list list;
  for (auto a : arrays_in(tree)) {
    list.append(a);
  }
  return list;
}

// By the address of the object that an array replaces, its id in Python.
nb::dict fuse_outputs(nb::handle outputs, nb::handle boundary) {
  auto objects = arrays_in(outputs);
  auto old = as_arrays(objects);
  auto given = [&] { return as_arrays(arrays_in(boundary)); };
  auto fused = fuse_graph(old, given);
  nb::dict changed;
  for (size_t i = 0; i < old.size(); ++i) {
    if (fused[i].id() != old[i].id()) {
      auto id = reinterpret_cast<std::uintptr_t>(objects[i].ptr());
      changed[nb::cast(id)] = nb::cast(fused[i]);
    }
  }
  return changed;
}

nb::dict counts() {
  nb::dict reasons, written, around, all;
  int64_t passed_on = 0;
  for (int i = 0; i < kCounted; ++i) {
    auto counted = static_cast<Counted>(i);
    auto [section, text] = line_of(counted);
    auto times = count_of(counted);
    passed_on += section == Section::PassedOn ? times : 0;
    if (section == Section::Numbers) {
      all[text] = times;
    } else if (times > 0) {
      (section == Section::Written      ? written
           : section == Section::Around ? around
                                        : reasons)[text] = times;
    }
  }
  all["fused"] = count_of(Counted::Fused) + count_of(Counted::SumsOfNorms);
  all["passed_on"] = passed_on;
  all["reasons"] = reasons;
  all["around"] = around;
  all["written"] = written;
  return all;
}

} // namespace

void bind_patching(nb::module_& m) {
  // Those of the layers that are replaced in Python.
  nb::enum_<Counted>(m, "Outcome")
      .value("GROUPS", Counted::Groups)
      .value("DTYPE_NOT_TAKEN", Counted::DtypeNotTaken)
      .value("ARGUMENTS_NOT_TAKEN", Counted::ArgumentsNotTaken);
  m.def(
      "count_outcome",
      [](Counted outcome) { count(outcome); },
      "outcome"_a,
      nb::sig("def count_outcome(outcome: Outcome) -> None"),
      "Counts the outcome of a call.");

  // With the arguments of mx.fast.
  m.def(
      "patched_rms_norm",
      &patched_rms_norm,
      "x"_a,
      "weight"_a.none(),
      "eps"_a,
      nb::kw_only(),
      "stream"_a = nb::none(),
      nb::sig(
          "def patched_rms_norm(x: mlx.core.array, weight: mlx.core.array | None, eps: float, *, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      "Replaces ``mx.fast.rms_norm``.");
  m.def(
      "patched_layer_norm",
      &patched_layer_norm,
      "x"_a,
      "weight"_a.none(),
      "bias"_a.none(),
      "eps"_a,
      nb::kw_only(),
      "stream"_a = nb::none(),
      nb::sig(
          "def patched_layer_norm(x: mlx.core.array, weight: mlx.core.array | None, bias: mlx.core.array | None, eps: float, *, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array"),
      "Replaces ``mx.fast.layer_norm``.");
  m.def(
      "patched_rope",
      [](const mx::array& a,
         int dims,
         bool traditional,
         std::optional<float> base,
         float scale,
         const Offset& offset,
         const mx::array* freqs,
         mx::StreamOrDevice stream) {
        RopeOptions options{
            .dims = dims,
            .traditional = traditional,
            .base = base,
            .scale = scale,
            .freqs = freqs,
            .rounding = std::nullopt,
            .stream = stream};
        if (auto* number = std::get_if<int>(&offset)) {
          options.offset = *number;
        } else if (auto* given = std::get_if<mx::array>(&offset)) {
          options.offset = *given;
        }
        bool refused = std::holds_alternative<bool>(offset); // by MLX
        return refused ? std::nullopt : patched_rope(a, std::move(options));
      },
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
          "def patched_rope(a: mlx.core.array, dims: int, *, traditional: bool, base: float | None, scale: float, offset: int | mlx.core.array, freqs: mlx.core.array | None = None, stream: mlx.core.StreamOrDevice = None) -> mlx.core.array | None"),
      "Replaces ``mx.fast.rope``; None: MLX has to compute it.");
  m.def(
      "fuse_graph",
      &fuse_outputs,
      "outputs"_a.none(),
      "boundary"_a.none(),
      nb::sig(
          "def fuse_graph(outputs: object, boundary: object) -> dict[int, mlx.core.array]"),
      "Those of the trees' arrays that change, by the id of the old one, as "
      "norms compute what stands around them in the graph.");
  m.def(
      "tree_arrays",
      &tree_arrays,
      "tree"_a.none(),
      nb::sig("def tree_arrays(tree: object) -> list[mlx.core.array]"),
      "The arrays in nested lists, tuples and dicts.");
  m.def(
      "fuse_at_eval",
      &fuse_at_eval,
      "roots"_a,
      "around"_a,
      "projections"_a,
      nb::sig(
          "def fuse_at_eval(roots: list[mlx.core.array], around: bool, projections: bool) -> int"),
      "Fuses norms with what stands around them, in place; with ``projections`` "
      "also with the matmuls that read them, and takes other quantized products. "
      "Returns how many norms it fused with matmuls.");
  m.def("patch_counts", &counts, "The outcomes of patched calls.");
  m.def("reset_patch_counts", &reset_counts, "Resets the counts.");
}

} // namespace mlx_norms
