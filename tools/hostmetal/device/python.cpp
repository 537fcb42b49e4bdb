// Copyright © 2026 mlx_norms contributors

// The device's side of the Python package hostmetal.

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "encoder.h"
#include "handlers.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace hostmetal;

namespace {

// Calls a Python handler; an exception of it becomes a fault. MLX holds no GIL
// while it encodes or runs, so that it can be taken here.
template <typename Result, typename Argument>
std::function<Result(const Argument&)> handler(nb::object function) {
  // Never released: the interpreter may be gone by then.
  auto* callable = new nb::object(std::move(function));
  return [callable](const Argument& argument) -> Result {
    std::string error;
    bool is_thrown_by_mlx = false;
    nb::gil_scoped_acquire gil;
    try {
      auto result = (*callable)(nb::cast(&argument, nb::rv_policy::reference));
      if constexpr (!std::is_void_v<Result>) {
        return nb::cast<Result>(result);
      } else {
        return;
      }
    } catch (nb::python_error& exception) {
      error = nb::hasattr(exception.value(), "is_whole_text")
          ? nb::str(exception.value()).c_str()
          : exception.what();
      is_thrown_by_mlx = nb::hasattr(exception.value(), "thrown_by_mlx");
    }
    if (is_thrown_by_mlx) {
      throw std::runtime_error(error);
    }
    refuse(error);
  };
}

nb::bytes to_bytes(const std::string& text) {
  return nb::bytes(text.data(), text.size());
}

} // namespace

NB_MODULE(_hostmetal, m) {
  nb::enum_<BindingKind>(m, "BindingKind")
      .value("Input", BindingKind::Input)
      .value("Output", BindingKind::Output)
      .value("Buffer", BindingKind::Buffer)
      .value("Bytes", BindingKind::Bytes);

  nb::class_<Constant>(m, "Constant")
      .def_ro("index", &Constant::index)
      .def_ro("type", &Constant::type)
      .def_prop_ro(
          "value", [](const Constant& c) { return to_bytes(c.value); });

  nb::class_<Library>(m, "Library")
      .def_ro("name", &Library::name)
      .def_ro("text", &Library::text);

  nb::class_<Pipeline>(m, "Pipeline")
      .def_prop_ro(
          "library",
          [](const Pipeline& p) -> const Library& { return *p.library; },
          nb::rv_policy::reference_internal)
      .def_ro("kernel", &Pipeline::kernel)
      .def_ro("hash_name", &Pipeline::hash_name)
      .def_ro("constants", &Pipeline::constants);

  nb::class_<Binding>(m, "Binding")
      .def_ro("kind", &Binding::kind)
      .def_prop_ro("bytes", [](const Binding& b) { return to_bytes(b.bytes); })
      .def_prop_ro(
          "address",
          [](const Binding& b) { return reinterpret_cast<size_t>(b.address); })
      .def_ro("size", &Binding::size)
      .def_ro("offset", &Binding::offset)
      .def_ro("begin", &Binding::begin)
      .def_ro("end", &Binding::end)
      .def_ro("initialized", &Binding::initialized)
      .def_ro("must_fill", &Binding::must_fill)
      .def_ro("temporary", &Binding::temporary);

  nb::class_<Launch>(m, "Launch")
      .def_prop_ro(
          "pipeline",
          [](const Launch& l) -> const Pipeline& { return *l.pipeline; },
          nb::rv_policy::reference_internal)
      .def_ro("bindings", &Launch::bindings)
      .def_ro("stale", &Launch::stale)
      .def_ro("threadgroup_memory", &Launch::threadgroup_memory)
      .def_ro("grid", &Launch::grid)
      .def_ro("group", &Launch::group)
      .def_ro("in_threads", &Launch::in_threads)
      .def_ro("stream", &Launch::stream);

  m.def(
      "attach",
      [](nb::object simulator) {
        // Never released: the interpreter may be gone by then.
        auto* faults = new nb::object(simulator.attr("faults"));
        set_handlers(
            {handler<Kernels, Library>(simulator.attr("kernels")),
             handler<void, Pipeline>(simulator.attr("pipeline")),
             handler<size_t, Pipeline>(simulator.attr("thread_limit")),
             handler<size_t, Pipeline>(simulator.attr("static_memory")),
             handler<std::vector<int>, Launch>(simulator.attr("encode")),
             handler<void, Launch>(simulator.attr("run")),
             [faults](const std::string& what) {
               nb::gil_scoped_acquire gil;
               faults->attr("append")(what);
             }});
      },
      "simulator"_a,
      "Gives the device its simulator, for the life of the process.");

  m.def("pending", &pending, "Launches submitted that have not run.");
}
