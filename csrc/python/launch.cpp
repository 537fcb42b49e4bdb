// Copyright © 2026 mlx_norms contributors

#include "csrc/python/bindings.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "csrc/common/checks.h"
#include "csrc/op/launched.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlx_norms {

namespace {

template <typename T>
T value_of(nb::handle value, const std::string& name, const char* kind) {
  try {
    return nb::cast<T>(value);
  } catch (const nb::cast_error&) {
    refuse("launch", "\"" + name + "\" must be " + kind + ".");
  }
}

nb::dict launch_by_name(
    const std::string& kernel,
    nb::dict arguments,
    nb::dict outputs,
    nb::dict constants,
    std::array<int64_t, 3> groups,
    std::array<int64_t, 3> group,
    mx::StreamOrDevice stream) {
  NamedLaunch named{kernel, {}, {}, {}, {}, groups, group};
  for (auto [key, value] : constants) {
    auto name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::bool_>(value)) {
      named.constants.emplace_back(name, nb::cast<bool>(value));
    } else {
      named.constants.emplace_back(
          name, value_of<int>(value, name, "a bool or an int of 32 bits"));
    }
  }
  for (auto [key, value] : arguments) {
    auto name = nb::cast<std::string>(key);
    if (nb::isinstance<mx::array>(value)) {
      named.inputs.emplace_back(name, nb::cast<mx::array>(value));
    } else {
      named.scalars.emplace_back(
          name,
          value_of<NamedLaunch::Scalar>(
              value, name, "an array, a number or six ints"));
    }
  }
  for (auto [key, value] : outputs) {
    auto name = nb::cast<std::string>(key);
    using Made = std::pair<std::vector<int>, mx::Dtype>;
    auto [shape, dtype] = value_of<Made>(value, name, "a shape and a dtype");
    named.outputs.emplace_back(
        name, std::pair(mx::Shape(shape.begin(), shape.end()), dtype));
  }
  auto made = launch(named, stream);
  nb::dict found;
  for (size_t i = 0; i < made.size(); ++i) {
    found[named.outputs[i].first.c_str()] = made[i];
  }
  return found;
}

} // namespace

void bind_launch(nb::module_& m) {
  m.def(
      "_launch",
      &launch_by_name,
      "kernel"_a,
      "arguments"_a,
      "outputs"_a,
      nb::kw_only(),
      "constants"_a = nb::dict(),
      "groups"_a,
      "group"_a,
      "stream"_a = nb::none(),
      nb::sig(
          "def _launch(kernel: str, arguments: dict[str, mlx.core.array | int | float | collections.abc.Sequence[int]], outputs: dict[str, tuple[collections.abc.Sequence[int], mlx.core.Dtype]], *, constants: dict[str, bool | int] = {}, groups: tuple[int, int, int], group: tuple[int, int, int], stream: mlx.core.StreamOrDevice = None) -> dict[str, mlx.core.array]"),
      R"pbdoc(
        Launches a kernel of this build, on a GPU, to try it.

        The names are those of the kernel's text. It is not asked what the
        kernel reads and writes beyond its arrays.

        Args:
            kernel (str): An instantiation, such as ``"layer_norm_simd_4"``.
            arguments (dict): Its arrays that are read, which are made dense,
              its numbers and its layouts, of six ints.
            outputs (dict): Shape and dtype of each array that it writes.
            constants (dict): All of its function constants.
            groups (tuple): Threadgroups along x, y and z.
            group (tuple): Threads of each.
            stream (StreamOrDevice): Stream or device.

        Returns:
            dict: The outputs. They have no derivatives and no vmap, and a
            graph of ``mx.compile(shapeless=True)`` has them for the shapes of
            its trace.

        Raises:
            ValueError: If there is no such kernel, it lacks something, does not
              take what is given, or the stream is the CPU's.
      )pbdoc");
}

} // namespace mlx_norms
