// Copyright © 2026 mlx_norms contributors

#include "csrc/patching/written_norm.h"

#include <atomic>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "csrc/patching/patched.h"
#include "csrc/patching/written_op.h"
#include "csrc/python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

// A norm, and how many calls of it were taken, in any thread.
struct CountedNorm {
  WrittenNorm norm;
  std::atomic<int64_t> calls = 0;

  explicit CountedNorm(const WrittenNorm& norm) : norm(norm) {}
};

nb::object
read(const mx::array& output, const mx::array& x, const Arrays& parameters) {
  auto found = written_norm(output, x, parameters);
  if (auto* why = std::get_if<std::string>(&found)) {
    return nb::cast(*why);
  }
  return nb::cast(new CountedNorm(std::get<WrittenNorm>(found)));
}

std::optional<mx::array> call(
    CountedNorm& of,
    Fusion fusion,
    const nb::object& tell,
    const mx::array& x,
    const mx::array* weight,
    const mx::array* bias,
    const mx::array* factor) {
  auto y = patched_written_norm(of.norm, x, weight, bias, factor, fusion);
  if (!y) {
    return std::nullopt;
  }
  of.calls.fetch_add(1, std::memory_order_relaxed);
  if (!tell.is_none()) {
    tell(text(y->outcome));
  }
  return std::move(y->normalized);
}

} // namespace

void bind_written_norm(nb::module_& m) {
  nb::class_<CountedNorm>(
      m, "WrittenNorm", "A norm that a model's code was found to compute.")
      .def_prop_ro("op", [](const CountedNorm& of) { return of.norm.op(); })
      .def_prop_ro(
          "axis",
          [](const CountedNorm& of) { return of.norm.axis; },
          "Of x, not negative.")
      .def_prop_ro(
          "weight",
          [](const CountedNorm& of) { return of.norm.weight; },
          "Which of the parameters.")
      .def_prop_ro("bias", [](const CountedNorm& of) { return of.norm.bias; })
      .def_prop_ro(
          "factor", [](const CountedNorm& of) { return of.norm.factor; })
      .def_prop_rw(
          "calls",
          [](const CountedNorm& of) { return of.calls.load(); },
          [](CountedNorm& of, int64_t calls) { of.calls = calls; },
          "How many were taken.")
      .def(
          "alone",
          [](const CountedNorm& of,
             const mx::array& x,
             const mx::array* weight,
             const mx::array* bias,
             const mx::array* factor) {
            return compute(of.norm, x, weight, bias, factor);
          },
          "x"_a,
          "weight"_a.none(),
          "bias"_a.none(),
          "factor"_a.none(),
          nb::sig(
              "def alone(self, x: mlx.core.array, weight: mlx.core.array | None, bias: mlx.core.array | None, factor: mlx.core.array | None) -> mlx.core.array"),
          "The norm by an op of this package, not counted.")
      .def(
          "__call__",
          &call,
          "fusion"_a,
          "tell"_a.none(),
          "x"_a,
          "weight"_a.none(),
          "bias"_a.none(),
          "factor"_a.none(),
          nb::sig(
              "def __call__(self, fusion: Fusion, tell: object, x: mlx.core.array, weight: mlx.core.array | None, bias: mlx.core.array | None, factor: mlx.core.array | None) -> mlx.core.array | None"),
          "The norm of ``x``; calls ``tell`` with the outcome. ``None``: the "
          "model's own code has to compute it.");
  m.def(
      "stand_in",
      &stand_in,
      "x"_a,
      nb::sig("def stand_in(x: mlx.core.array) -> mlx.core.array"),
      "An array without a value, like ``x``, to call code on.");
  m.def(
      "read_norm",
      &read,
      "output"_a,
      "x"_a,
      "parameters"_a,
      nb::sig(
          "def read_norm(output: mlx.core.array, x: mlx.core.array, parameters: list[mlx.core.array]) -> WrittenNorm | str"),
      "The norm of the stand-in ``x`` that ``output`` is, or why it is none.");
}

} // namespace mlx_norms
