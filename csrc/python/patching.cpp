// Copyright © 2026 mlx_norms contributors

#include "csrc/python/arguments.h"
#include "csrc/python/bindings.h"

#include "csrc/patching/pass.h"
#include "csrc/patching/patched.h"
#include "csrc/patching/report.h"
#include "csrc/python/trees.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

Arrays as_arrays(const std::vector<nb::handle>& objects) {
  return nb::cast<Arrays>(nb::cast(objects));
}

// Returns arrays by the address of the object that each replaces, its id in
// Python.
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

// With the arguments of mx.fast, and those that it requires.
void bind_replaced(nb::module_& m) {
  using N = FastNormArguments;
  static const Parameters<N> of_rms_norm(
      {required<&N::x>("x"),
       parameter<&N::weight>("weight"),
       parameter<&N::eps>("eps"),
       parameter<&N::stream>("stream")},
      /* required= */ 3,
      /* positional= */ 3);
  static const Parameters<N> of_layer_norm(
      {required<&N::x>("x"),
       parameter<&N::weight>("weight"),
       parameter<&N::bias>("bias"),
       parameter<&N::eps>("eps"),
       parameter<&N::stream>("stream")},
      /* required= */ 4,
      /* positional= */ 4);
  using R = RopeArguments;
  static const Parameters<R> of_rope(
      {required<&R::q>("a"),
       parameter<&R::dims>("dims"),
       parameter<&R::traditional>("traditional"),
       parameter<&R::base>("base"),
       parameter<&R::scale>("scale"),
       parameter<&R::offset>("offset"),
       parameter<&R::freqs>("freqs"),
       parameter<&R::stream>("stream")},
      /* required= */ 6,
      /* positional= */ 2);
  def<&patched_rms_norm>(m, "patched_rms_norm", of_rms_norm);
  def<&patched_layer_norm>(m, "patched_layer_norm", of_layer_norm);
  // None: MLX has to compute it.
  def<&patched_rope>(m, "patched_rope", of_rope);
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
      "Counts the outcome of a call.");

  bind_replaced(m);
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
      &arrays_in,
      "tree"_a.none(),
      nb::sig("def tree_arrays(tree: object) -> list[mlx.core.array]"),
      "The arrays in nested lists, tuples and dicts.");
  m.def(
      "fuse_at_eval",
      &fuse_at_eval,
      "roots"_a,
      "around"_a,
      "projections"_a,
      "Fuses norms with what stands around them, in place; with ``projections`` "
      "also with the matmuls that read them, and takes other quantized products. "
      "Returns how many norms it fused with matmuls.");
  m.def("patch_counts", &counts, "The outcomes of patched calls.");
  m.def("reset_patch_counts", &reset_counts, "Resets the counts.");
}

} // namespace mlx_norms
